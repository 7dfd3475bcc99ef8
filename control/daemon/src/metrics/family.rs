//! Families of metrics: one name, and a sample for each set of labels.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use std::collections::HashMap;
use std::fmt;

/// Name, without the prefix and what the format adds (`_total`), and help.
pub type Named = (&'static str, &'static str);

/// Names and values of a sample's labels.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Where families are written.
pub struct Families<'a>(pub DescriptorEncoder<'a>);

impl Families<'_> {
    /// Writes a gauge without labels.
    pub fn gauge(&mut self, named: Named, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(named, [(Labels::new(), value)])
    }

    /// Writes gauges.
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

    /// Of values that do not change while the process runs.
    pub fn info(&mut self, (name, help): Named, labels: &Labels<'_>) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    /// Writes histograms.
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

/// A histogram's sample.
pub struct Histogram {
    /// The sum of what was counted.
    pub sum: f64,
    /// How often.
    pub count: u64,
    /// Upper bound, and what is above the bound before and not above this one.
    pub buckets: Vec<(f64, u64)>,
}

/// A count as the format has it.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Nanoseconds as seconds, in which Prometheus counts all times.
#[allow(clippy::cast_precision_loss, reason = "after 104 days the last digit is a nanosecond off")]
pub fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
