//! A single value from the file, a request or the command line, before its type is checked.
//!
//! Every typed value of the configuration is read from a scalar, so that a wrong type
//! (`mtu = "big"`, `vlan = true`) gives the same message as a wrong number.

use problem::Problem;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A text, a number or a boolean.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// In quotes.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A number that no key accepts: a fraction, or beyond 63 bits.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
}

impl Scalar {
    /// Returns a word of the command line as the value of a key that wants a whole number.
    pub(crate) fn typed_number(word: &str) -> Scalar {
        word.parse().map_or_else(|_| Scalar::Text(word.to_owned()), Scalar::Number)
    }

    /// Returns the value as a whole number within `range`, or the problem.
    pub(crate) fn number(&self, range: std::ops::RangeInclusive<i64>) -> Result<i64, Problem> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        match self {
            Scalar::Number(number) if range.contains(number) => Ok(*number),
            Scalar::Number(_) => Err(self.problem("out of range", &wanted)),
            _ => Err(self.problem("not a whole number", &wanted)),
        }
    }

    /// Returns a problem with this value; the remedy is to write what is wanted.
    pub(crate) fn problem(&self, error: &str, wanted: &str) -> Problem {
        Problem::new(error).seen(self).wanted(wanted).remedy(format!("write {wanted}"))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => write!(out, "{text:?}"),
            Scalar::Number(number) => number.fmt(out),
            Scalar::Float(number) => number.fmt(out),
            Scalar::Bool(bool) => bool.fmt(out),
        }
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("one value: a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    #[allow(clippy::cast_precision_loss, reason = "only shown to people, and then refused")]
    fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(i64::try_from(number).map_or(Scalar::Float(number as f64), Scalar::Number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(number))
    }

    fn visit_bool<E: Error>(self, bool: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(bool))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Scalar, D::Error> {
        input.deserialize_any(ScalarVisitor)
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self {
            Scalar::Text(text) => output.serialize_str(text),
            Scalar::Number(number) => output.serialize_i64(*number),
            Scalar::Float(number) => output.serialize_f64(*number),
            Scalar::Bool(bool) => output.serialize_bool(*bool),
        }
    }
}

/// Reads a number within a range, or nothing: for `deserialize_with` of a bare integer.
///
/// # Errors
/// The value is not a whole number, or out of range.
pub fn ranged<'de, D, T, const MIN: i64, const MAX: i64>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    let Some(scalar) = Option::<Scalar>::deserialize(input)? else { return Ok(None) };
    let number = scalar.number(MIN..=MAX);
    Ok(T::try_from(number.map_err(|problem| D::Error::custom(problem.pack()))?).ok())
}

/// A type that is read from and written as one [`Scalar`].
pub(crate) trait FromScalar: Sized {
    /// Returns a word of the command line as a scalar. Names and modes stay text, leading zeros
    /// included (`007`, `0660`); a type that is a number overrides this.
    fn typed(word: &str) -> Scalar {
        Scalar::Text(word.to_owned())
    }
    /// Returns the typed value, or the problem with it.
    fn read(scalar: &Scalar) -> Result<Self, Problem>;
    /// Returns the value as written in the file; `read` accepts it.
    fn write(&self) -> Scalar;
}

/// Implements reading and writing of newtypes through [`FromScalar`]: by serde in both directions,
/// and from a word of the command line.
macro_rules! through_scalar {
    ($($name:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let scalar = <$crate::scalar::Scalar as serde::Deserialize>::deserialize(input)?;
                <$name as $crate::scalar::FromScalar>::read(&scalar)
                    .map_err(|problem| serde::de::Error::custom(problem.pack()))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$crate::scalar::FromScalar::write(self), output)
            }
        }

        impl std::str::FromStr for $name {
            type Err = problem::Problem;
            fn from_str(word: &str) -> Result<Self, problem::Problem> {
                let scalar = <$name as $crate::scalar::FromScalar>::typed(word);
                <$name as $crate::scalar::FromScalar>::read(&scalar)
            }
        }
    )*};
}
pub(crate) use through_scalar;

/// Implements the schema of a type that is written as text or as a bare number.
macro_rules! text_or_number {
    ($($name:ident),*) => {$(
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
                let types = SchemaType::from_iter([Type::String, Type::Integer]);
                ObjectBuilder::new().schema_type(types).into()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}
pub(crate) use text_or_number;
