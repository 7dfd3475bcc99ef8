//! Families of metrics: each has one name, and a sample for each set of labels.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use std::collections::HashMap;
use std::fmt;

/// Name and help. The name lacks the prefix and the suffix that the format adds (`_total`).
pub type Named = (&'static str, &'static str);

/// Names and values of a sample's labels.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Encoder to which families are written.
pub struct Families<'a>(pub DescriptorEncoder<'a>);

impl Families<'_> {
    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn gauge(&mut self, named: Named, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(named, [(Labels::new(), value)])
    }

    /// Writes gauges.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn gauges<'l>(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = (Labels<'l>, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            sample(&mut family, &labels, |encoder| encoder.encode_gauge(&value))?;
        }
        Ok(())
    }

    /// Writes counters.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn counters<'l>(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = (Labels<'l>, impl EncodeCounterValue)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        let exemplar: Option<&Exemplar<Labels<'_>, f64>> = None;
        for (labels, value) in samples {
            sample(&mut family, &labels, |encoder| encoder.encode_counter(&value, exemplar))?;
        }
        Ok(())
    }

    /// Writes labels that do not change while the process runs, as an info metric.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn info(&mut self, (name, help): Named, labels: &Labels<'_>) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    /// Writes histograms.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn histograms<'l>(
        &mut self,
        (name, help): Named,
        samples: impl IntoIterator<Item = (Labels<'l>, Histogram)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let exemplars: Option<&HashMap<usize, Exemplar<Labels<'_>, f64>>> = None;
        for (labels, Histogram { sum, count, buckets }) in samples {
            sample(&mut family, &labels, |encoder| {
                encoder.encode_histogram(sum, count, &buckets, exemplars)
            })?;
        }
        Ok(())
    }
}

/// Writes a sample with its labels, without braces where there are none.
fn sample(
    family: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { encode(family) } else { encode(&mut family.encode_family(labels)?) }
}

/// The sample of a histogram.
pub struct Histogram {
    /// Sum of the observed values.
    pub sum: f64,
    /// Number of observed values.
    pub count: u64,
    /// Upper bound of each bucket, and the number of values above the bound before and up to this
    /// one.
    pub buckets: Vec<(f64, u64)>,
}

/// Returns a count as the type that the format has for gauges.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns nanoseconds as seconds, in which Prometheus counts all times.
#[allow(clippy::cast_precision_loss, reason = "after 104 days the last digit is a nanosecond off")]
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
