//! The last hour of each port as a line of the list: a character for each two minutes.

use crate::commands::Ended;
use crate::recent::Recent;
use crate::shared::Shared;
use axum::body::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long an answer is used: a line changes every two minutes.
const FRESH: Duration = Duration::from_secs(15);

/// The last answer, for all requests at about the same time.
pub(super) struct Sparks {
    last: Recent<Result<Bytes, Ended>>,
}

impl Default for Sparks {
    fn default() -> Sparks {
        Sparks { last: Recent::lasting(FRESH) }
    }
}

impl Sparks {
    /// Returns the lines of all ports as JSON, by name: digits to base 36, and `-` where nothing is
    /// known.
    ///
    /// # Errors
    /// The switch's thread has ended.
    pub(super) async fn all(&self, shared: &Shared) -> Result<Bytes, Ended> {
        let make = async || {
            let all = shared.run(|running| running.history.sparks()).await?;
            let lines: BTreeMap<String, String> = all
                .into_iter()
                .map(|(name, spark)| (name, spark.into_iter().map(digit).collect()))
                .collect();
            Ok(Bytes::from(serde_json::to_vec(&lines).unwrap_or_default()))
        };
        self.last.answer(Instant::now(), make, Clone::clone).await
    }
}

fn digit(value: Option<u32>) -> char {
    value.and_then(|value| char::from_digit(value, 36)).unwrap_or('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_character() {
        assert_eq!([None, Some(0), Some(10), Some(35)].map(digit), ['-', '0', 'a', 'z']);
    }
}
