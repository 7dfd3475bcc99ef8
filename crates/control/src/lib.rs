//! Configuration, plan, REST API, client, metrics and health.
