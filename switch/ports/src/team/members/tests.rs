use crate::ioctl::ASKED_BY_NAME;
use crate::namespace;
use crate::team::{Member, TeamOptions, assemble};
use std::process::Command;

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
}

/// The kernel looks for a module at each question by a name that does not exist, and every other
/// member's failover waited for that.
#[test]
fn a_device_that_is_gone_is_not_asked_for_by_name() {
    let tried = namespace::fresh(|| {
        ip("link add mill0 type veth peer name mill1");
        let opener = |name: &str| Ok(Member::packet(name, None).unwrap());
        let (_device, team) = assemble(&TeamOptions::new(&["mill0"]), Box::new(opener)).unwrap();
        let asked = |look: &dyn Fn()| {
            let before = ASKED_BY_NAME.get();
            look();
            ASKED_BY_NAME.get() - before
        };
        assert_ne!(asked(&|| team.inner.look()), 0, "one that is there is asked");
        ip("link delete mill0");
        assert_eq!(asked(&|| team.inner.glance()), 0);
        assert_eq!(asked(&|| team.inner.look()), 0);
        let trouble = team.status().members[0].trouble.clone();
        assert_eq!(trouble.as_deref(), Some("its device has gone"));
    });
    if let Err(error) = tried {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}
