//! Checks that each host has one whole model at any time: the one in force, or one that was applied
//! since.

use super::CLAIMED;
use super::sites::{Site, fleet_ports, has_extra, number_of};
use config::PortConfig;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The models that a host may have or adopt.
#[derive(Default)]
pub(super) struct Models {
    /// The last model that was rolled out completely.
    in_force: Option<usize>,
    /// The models with a roll-out that began since then.
    begun: Vec<usize>,
}

impl Models {
    pub(super) fn begin(&mut self, number: usize) {
        self.begun.push(number);
    }

    pub(super) fn complete(&mut self, number: usize) {
        (self.in_force, self.begun) = (Some(number), Vec::new());
    }

    fn allow(&self, number: usize) -> bool {
        self.in_force == Some(number) || self.begun.contains(&number)
    }
}

/// Returns the number of the model that a host has as a whole; `None` if it has no port of the
/// fleet.
fn whole(host: usize, ports: &[PortConfig]) -> Result<Option<usize>, String> {
    if ports.is_empty() {
        return Ok(None);
    }
    let of_network = ports.iter().filter(|port| port.name.as_str() != "up");
    let rates = of_network.map(|port| port.rate.map(|rate| rate.to_string()));
    let mut numbers: Vec<_> = rates.map(|it| it.as_deref().and_then(number_of)).collect();
    numbers.dedup();
    let [Some(number)] = numbers[..] else {
        return Err(format!("has ports of the models {numbers:?}"));
    };
    let mut names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    names.retain(|name| !name.starts_with(CLAIMED));
    let mut wanted = vec![format!("vm-h{host}"), "up".to_owned()];
    wanted.extend(has_extra(number, host).then(|| format!("extra-h{host}")));
    names.sort_unstable();
    wanted.sort_unstable();
    if names == wanted { Ok(Some(number)) } else { Err(format!("has {names:?} of model {number}")) }
}

/// Reads the ports of all switches in a loop.
pub(super) struct Looks {
    ends: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    looks: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    count: usize,
    wrong: Vec<String>,
}

impl Looks {
    pub(super) fn start(sites: &[Site], models: Arc<Mutex<Models>>) -> Looks {
        let sockets: Vec<PathBuf> = sites.iter().map(Site::socket).collect();
        let (ends, seen) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Seen>>::default());
        let (end, sees) = (Arc::clone(&ends), Arc::clone(&seen));
        let looks = std::thread::spawn(move || {
            let mut last = vec![None; sockets.len()];
            while !end.load(Ordering::Relaxed) {
                for (host, socket) in sockets.iter().enumerate() {
                    let found = whole(host, &fleet_ports(socket));
                    let wrong = judge(found, &mut last[host], &models.lock().unwrap()).err();
                    let mut seen = sees.lock().unwrap();
                    seen.count += 1;
                    seen.wrong.extend(wrong.map(|wrong| format!("host {host} {wrong}")));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Looks { ends, seen, looks }
    }

    /// Checks that each look saw one whole model. Returns the number of looks.
    pub(super) fn check(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "of {} looks: {:#?}", seen.count, seen.wrong);
        seen.count
    }

    pub(super) fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.looks.join().unwrap();
    }
}

/// Checks that a host stays with the model that it had last, or adopts one that is allowed.
fn judge(
    found: Result<Option<usize>, String>,
    last: &mut Option<usize>,
    models: &Models,
) -> Result<(), String> {
    let found = found?;
    let before = std::mem::replace(last, found);
    if found == before || found.is_some_and(|number| models.allow(number)) {
        return Ok(());
    }
    Err(format!("went from model {before:?} to {found:?}"))
}

#[test]
fn a_host_goes_to_a_model_that_is_in_force_or_has_begun_since_and_to_no_other() {
    let (mut models, mut last) = (Models::default(), None);
    models.begin(1);
    assert_eq!(judge(Ok(Some(1)), &mut last, &models), Ok(()));
    models.complete(1);
    models.begin(2);
    models.begin(3);
    for allowed in [3, 1, 2, 1] {
        assert_eq!(judge(Ok(Some(allowed)), &mut last, &models), Ok(()));
    }
    models.complete(3);
    // A host may be late, but not go back.
    assert_eq!(judge(Ok(Some(1)), &mut last, &models), Ok(()));
    for other in [Some(2), None] {
        assert!(judge(Ok(other), &mut last, &models).is_err());
    }
    assert!(judge(Err("has two rates".to_owned()), &mut last, &models).is_err());
}

#[test]
fn a_mix_of_two_models_is_found() {
    let port = |name: &str, number: usize| {
        format!(r#"{{"name": "{name}", "tap": "t", "rate": "{}"}}"#, super::sites::rate(number))
    };
    let ports = |ports: &[String]| -> Vec<PortConfig> {
        ports.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    };
    let up = r#"{"name": "up", "packet": "wire"}"#.to_owned();
    let [even, odd] = [2, 3].map(|number| port("vm-h0", number));
    let (extra, claimed) = (port("extra-h0", 3), port("claimed1", 2));
    let found = |texts: &[&String]| {
        whole(0, &ports(&texts.iter().map(|it| (*it).clone()).collect::<Vec<_>>()))
    };
    assert_eq!(found(&[]), Ok(None));
    assert_eq!(found(&[&up, &even]), Ok(Some(2)));
    assert_eq!(found(&[&up, &even, &claimed]), Ok(Some(2)));
    assert_eq!(found(&[&up, &odd, &extra]), Ok(Some(3)));
    for mix in
        [&[&up, &odd][..], &[&even], &[&up, &even, &extra], &[&up, &odd, &extra, &claimed], &[&up]]
    {
        assert!(found(mix).is_err(), "{mix:?}");
    }
}
