//! The sections of the services that listen over TCP.

/// A service over TCP, by its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Counters and health.
    Metrics,
    /// The web page.
    Web,
}

impl Section {
    /// Returns the section as written.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Metrics => "[metrics]",
            Section::Web => "[web]",
        }
    }

    /// Returns the key of the address, as messages name it.
    pub const fn option(self) -> &'static str {
        match self {
            Section::Metrics => "`listen` in [metrics]",
            Section::Web => "`listen` in [web]",
        }
    }

    /// Returns a clause that says whether the service is available.
    pub const fn served(self, served: bool) -> &'static str {
        match (self, served) {
            (Section::Metrics, true) => "metrics are served",
            (Section::Metrics, false) => "metrics cannot be served",
            (Section::Web, true) => "the page is served",
            (Section::Web, false) => "the page cannot be served",
        }
    }

    /// Returns the remedy if the address cannot be bound.
    pub fn remedy(self) -> String {
        let name = self.name();
        let remedy = format!(
            "free the address, or correct `listen` in {name}; binding is retried every second"
        );
        match self {
            Section::Metrics => remedy,
            Section::Web => format!(
                "{remedy}. If another process listens there, it may show a fake page to collect tokens: replace the token"
            ),
        }
    }
}
