//! Reads a struct only from keys with values.
//!
//! What serde derives also takes a list, by position: `[]` was a configuration without ports, and
//! `["vm1", "tap1"]` a port. There is no attribute against that, so every reader of text from
//! elsewhere wraps its deserializer in [`Strict`]. The wrapper passes everything on, and wraps what is
//! nested; only a list for a struct is refused.
//!
//! serde buffers the content of an `untagged` enum, of one with a `tag` and of a `flatten`ed field,
//! where the wrapper does not reach: what is read here has none of them.

use problem::Problem;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::fmt;

/// A deserializer, a seed or an access, with what it reads held to keys and values.
pub struct Strict<T>(pub T);

/// A value that was read strictly, for readers that choose the deserializer themselves.
pub struct Strictly<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Strictly<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Strictly<T>, D::Error> {
        T::deserialize(Strict(input)).map(Strictly)
    }
}

/// Reads JSON.
///
/// # Errors
/// The text is not JSON, or not of this type.
pub fn from_json<'t, T: Deserialize<'t>>(text: &'t [u8]) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = T::deserialize(Strict(&mut reader))?;
    reader.end()?;
    Ok(value)
}

/// A visitor. `is_struct`: it wants a struct, so it gets no list.
struct Inside<V> {
    visitor: V,
    is_struct: bool,
}

impl<V> Inside<V> {
    fn any(visitor: V) -> Inside<V> {
        Inside { visitor, is_struct: false }
    }

    fn keyed(visitor: V) -> Inside<V> {
        Inside { visitor, is_struct: true }
    }
}

fn list() -> Problem {
    Problem::new("a list in place of keys with values")
        .seen("a list")
        .wanted("keys with values")
        .remedy("write each value with its key")
}

/// Passes on calls without further arguments.
macro_rules! pass_on {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Inside::any(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    pass_on!(deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq deserialize_map
        deserialize_identifier deserialize_ignored_any);

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Inside::keyed(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Inside::any(visitor))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Inside::any(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Inside::any(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(length, Inside::any(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, length, Inside::any(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Passes on single values.
macro_rules! visit {
    ($($method:ident: $value:ty),*) => {$(
        fn $method<E: Error>(self, value: $value) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Inside<V> {
    type Value = V::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(out)
    }

    visit!(visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32,
        visit_f64: f64, visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>);

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict(input))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, input: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict(input))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<V::Value, A::Error> {
        if self.is_struct {
            return Err(A::Error::custom(list().pack()));
        }
        self.visitor.visit_seq(Strict(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, values: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Strict(values))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, values: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Strict(values))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(input))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Strict<A> {
    type Error = A::Error;
    type Variant = Strict<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.0.variant_seed(Strict(seed))?;
        Ok((value, Strict(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Strict(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, Inside::any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Inside::keyed(visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    /// One of each place in which a struct can stand.
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        inner: Inner,
        optional: Option<Inner>,
        boxed: Box<Inner>,
        listed: Vec<Inner>,
        named: BTreeMap<String, Inner>,
        choice: Choice,
        pair: (u8, Inner),
        wrapped: Wrapped,
    }

    impl Default for Outer {
        fn default() -> Outer {
            Outer {
                inner: Inner::default(),
                optional: None,
                boxed: Box::default(),
                listed: Vec::new(),
                named: BTreeMap::new(),
                choice: Choice::Plain,
                pair: (0, Inner::default()),
                wrapped: Wrapped(Inner::default()),
            }
        }
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        x: u8,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Wrapped(Inner);

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Choice {
        Plain,
        Held(Inner),
        Keyed { x: u8 },
    }

    /// An `Outer` with `inner` in one of the places.
    fn in_each_place(inner: &Value) -> [Value; 9] {
        [
            json!({ "inner": inner }),
            json!({ "optional": inner }),
            json!({ "boxed": inner }),
            json!({ "listed": [{ "x": 1 }, inner] }),
            json!({ "named": { "a": inner } }),
            json!({ "choice": { "held": inner } }),
            json!({ "choice": { "keyed": inner } }),
            json!({ "pair": [1, inner] }),
            json!({ "wrapped": inner }),
        ]
    }

    proptest! {
        #[test]
        fn a_struct_is_taken_from_keys_and_from_no_list_wherever_it_stands(x: u8, extra: bool) {
            let mut values = vec![json!(x)];
            values.extend(extra.then(|| json!(0)));
            for (keyed, list) in in_each_place(&json!({ "x": x })).into_iter().zip(in_each_place(&json!(values))) {
                let outer = Outer::deserialize(Strict(keyed.clone())).unwrap();
                prop_assert!(outer != Outer::default() || x == 0);
                let [text, refused] = [&keyed, &list].map(Value::to_string);
                prop_assert_eq!(&from_json::<Outer>(text.as_bytes()).unwrap(), &outer);
                prop_assert_eq!(&serde_json::from_str::<Strictly<Outer>>(&text).unwrap().0, &outer);
                prop_assert!(from_json::<Outer>(refused.as_bytes()).is_err(), "{}", list);
                prop_assert!(serde_json::from_str::<Strictly<Outer>>(&refused).is_err());
                let toml = |value| toml::to_string(value).unwrap();
                let read = |text: &str| Outer::deserialize(Strict(toml::Deserializer::parse(text).unwrap()));
                prop_assert_eq!(&read(&toml(&keyed)).unwrap(), &outer);
                prop_assert!(read(&toml(&list)).is_err(), "{}", list);
                prop_assert!(Outer::deserialize(Strict(list)).is_err());
            }
        }
    }
}
