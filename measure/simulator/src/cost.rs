//! Cost of work to a worker, from measured turns (docs/performance.md, "Frames between two guests"
//! and "Waiting").

/// Nanoseconds of a frame, apart from its bytes: 17.73 Mpps of 64 bytes.
const FRAME_NS: f64 = 55.0;

/// Nanoseconds of a byte: 249 Gb/s of 9014 bytes, 287 Gb/s of trains of 64 KiB.
const BYTE_NS: f64 = 0.027;

/// Extra nanoseconds of a frame to or from another of a thousand addresses: 12.23 Mpps of 64 bytes.
const OTHER_ADDRESS_NS: f64 = 26.0;

/// Nanoseconds of a lone frame's turn and the wake-up before it.
const WAKE_NS: f64 = 4000.0;

/// Returns the share of a worker that `frames_a_second` of `bytes` bytes take.
pub fn share(frames_a_second: f64, bytes: f64) -> f64 {
    frames_a_second * (FRAME_NS + BYTE_NS * bytes) * 1e-9
}

/// Like [`share`], for frames among a thousand addresses.
pub fn share_of_many(frames_a_second: f64, bytes: f64) -> f64 {
    share(frames_a_second, bytes) + frames_a_second * OTHER_ADDRESS_NS * 1e-9
}

/// Returns the share of a worker that frames take if each of them wakes it.
pub fn lone(frames_a_second: f64) -> f64 {
    frames_a_second * (FRAME_NS + WAKE_NS) * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the measured rates, in the order of the document.
    #[test]
    fn a_full_worker_does_what_was_measured() {
        let measured = [
            (60.0, 17.73e6),
            (9010.0, 249.02e9 / 9014.0 / 8.0),
            (65536.0, 286.97e9 / 65536.0 / 8.0),
        ];
        for (bytes, rate) in measured {
            let busy = share(rate, bytes);
            assert!((0.95..1.05).contains(&busy), "{bytes} bytes: {busy}");
        }
        assert!(
            (share(110.37e9 / 1518.0 / 8.0, 1514.0) - 0.87).abs() < 0.01,
            "the fit's worst point"
        );
        assert!((share_of_many(12.23e6, 60.0) - 1.0).abs() < 0.02);
    }
}
