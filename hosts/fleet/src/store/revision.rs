//! Revisions: every model that was applied, numbered from 1 and never changed.

use super::{Store, document};
use crate::etcd::KeyValue;
use crate::model::Model;
use problem::Problem;
use serde::{Deserialize, Serialize};

/// A model, with its author, time and reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// The number, from 1 on; 0 is the empty model before the first revision.
    pub number: u64,
    /// Who applied it.
    pub author: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Why, in the author's words.
    pub message: String,
    /// For a rollback: the revision that had this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<u64>,
    /// The model.
    pub model: Model,
}

pub(super) const PREFIX: &str = "/millrace/v1/revisions/";

/// Returns the key of a revision, with leading zeros so that etcd's order is that of the numbers.
pub(super) fn key(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}

impl Store {
    /// Reads a revision; number 0 is the empty one.
    ///
    /// # Errors
    /// Fails if it does not exist, or etcd does not answer.
    pub fn revision(&self, number: u64) -> Result<Revision, Problem> {
        if number == 0 {
            return Ok(Revision::default());
        }
        let found = self.etcd.get(&key(number))?;
        let revision = found.keys.first().map(read).transpose()?;
        revision.ok_or_else(|| {
            Problem::new(format!("revision {number} does not exist"))
                .seen(number)
                .wanted("a revision that was applied")
                .remedy("`millrace fleet history` lists them")
        })
    }

    /// Reads the last revisions, newest first.
    ///
    /// # Errors
    /// Fails if etcd does not answer, or a revision cannot be read.
    pub fn history(&self, most: u32) -> Result<Vec<Revision>, Problem> {
        self.etcd.last(PREFIX, most)?.keys.iter().map(read).collect()
    }

    /// Reads the number of the newest revision; 0 if there is none.
    ///
    /// # Errors
    /// Fails if etcd does not answer, or the revision cannot be read.
    pub fn newest(&self) -> Result<u64, Problem> {
        Ok(self.history(1)?.first().map_or(0, |revision| revision.number))
    }
}

/// Reads a revision. Every agent reads the whole model, so control characters are replaced only in
/// author and message.
fn read(pair: &KeyValue) -> Result<Revision, Problem> {
    let mut revision: Revision = document(pair)?;
    for text in [&mut revision.author, &mut revision.message] {
        *text = daemon::migration::plain(text);
    }
    Ok(revision)
}
