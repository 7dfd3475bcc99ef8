//! The page with the answers of a pretended daemon that has run for a day, with any number of ports:
//! what a person sees first, on any screen.

use super::{PAGE, WEB, text_has};
use crate::browser::{Browser, NEEDS};
use crate::sandbox::story;
use crate::topology::Topology;

/// Returns the script that answers as a daemon with this many ports. The last one is in force.
pub(super) fn answers(ports: usize) -> String {
    let script = include_str!("pretended.js");
    format!("{{const PORTS = {ports};\n{script}}}")
}

/// Opens the page with this many ports.
fn open(browser: &mut Browser, ports: usize) {
    browser.prepare(&answers(ports));
    browser.visit(PAGE);
    browser.wait("the past is behind the tiles", PAST);
}

/// Whether each of the tiles has a line.
const PAST: &str = "document.querySelectorAll('#tiles .spark polyline').length >= 4";
/// Whether nothing is wider than the window.
const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

/// Six ports, sixty and a thousand; on a phone and on a desk. The drawing never is taller than a
/// screen.
#[test]
fn the_first_screen_says_how_the_switch_is_with_few_ports_and_with_many() {
    story(&NEEDS, || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        for ports in [6, 60, 1000] {
            browser.look(1280, 800, false);
            open(&mut browser, ports);
            browser.wait(
                "the drawing has ports",
                "document.querySelectorAll('#topology-body [data-port]').length > 5",
            );
            browser.wait(
                "lines of the list have a past",
                "document.querySelectorAll('#rows .spark').length > 5",
            );
            browser
                .wait("a port was chosen", "document.getElementById('port-body').hidden === false");
            browser
                .wait("its chart has a past", "document.querySelector('#port .u-over') !== null");
            for (width, height, dark) in
                [(375, 740, false), (375, 740, true), (1280, 800, false), (1280, 800, true)]
            {
                browser.look(width, height, dark);
                browser.wait("nothing sticks out", FITS);
                let tall = browser.value(
                    "document.querySelector('#topology-body svg').getBoundingClientRect().height",
                );
                assert!(
                    tall.as_f64().is_some_and(|tall| tall < 640.0),
                    "{ports} at {width}: {tall}"
                );
                let name = format!("{ports}-{width}-{}", if dark { "dark" } else { "light" });
                browser.picture(&name);
                assert_eq!(browser.barriers(), Vec::<String>::new(), "{name}");
            }
        }
        assert_eq!(browser.complaints(), Vec::<String>::new());
    });
}

/// A person sorts, looks back a day, and finds one line in place of fifty-four.
#[test]
fn heads_sort_the_past_goes_back_a_day_and_equal_events_are_one_line() {
    story(&NEEDS, || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(1280, 800, false);
        open(&mut browser, 60);
        let first = |name: &str| {
            format!(
                "document.querySelector('#rows [aria-rowindex=\"2\"]')?.firstChild.textContent === '{name}'"
            )
        };
        browser.wait("it is sorted by name", &first("uplink0"));
        browser.value("document.querySelector('[data-sort=drops]').click()");
        browser.wait(
            "what drops is first",
            "document.querySelector('#rows [aria-rowindex=\"2\"] .bad') !== null",
        );
        browser.value("document.querySelector('[data-sort=name]').click()");
        browser.value("document.querySelector('[data-sort=name]').click()");
        browser.wait("the order is reversed", &first("vm59"));
        browser.wait(
            "that is told",
            "document.querySelector('[data-sort=name]').parentElement.ariaSort === 'descending'",
        );
        browser.value("[...document.querySelectorAll('#overview .ranges button')].at(-1).click()");
        browser.wait("both charts show a day", "[...document.querySelectorAll('.ranges [aria-pressed=true]')].every((button) => button.textContent === '24 h')");
        browser
            .wait("equal events are one line", &text_has("#event-list", "port … is up 54 times"));
        assert_eq!(browser.value("document.querySelectorAll('#event-list > li').length"), 3);
        browser.value("document.querySelector('#event-list summary').click()");
        browser.wait("it is unfolded", &text_has("#event-list details[open]", "port vm2 is up"));
        browser.wait("findings have what is wanted", &text_has("#finding-list", "wanted: 9000"));
        assert_eq!(browser.complaints(), Vec::<String>::new());
    });
}

/// A tap on a port changed what was below the fold, and the screen stayed as it was.
#[test]
fn on_a_phone_a_tap_shows_what_it_opened() {
    story(&NEEDS, || {
        let _topology = Topology::new(WEB);
        let mut browser = Browser::open();
        browser.look(375, 740, false);
        open(&mut browser, 60);
        // What arrives later would move what was scrolled to.
        let settled = "['#topology-body [data-port]', '#rows .spark', '#port .u-over'].every((part) => document.querySelector(part))";
        browser.wait("the page has all that it shows", settled);
        assert_eq!(browser.value("scrollY"), 0, "a port that the page chose moves nothing");
        browser.value("[...document.querySelectorAll('#rows [role=row]')].find((row) => row.textContent.startsWith('vm7')).click()");
        let seen = "(({top}) => top >= 0 && top < 300)(document.getElementById('port-title').getBoundingClientRect())";
        browser.wait(
            "its title is on the screen",
            &format!("document.getElementById('port-title').textContent === 'vm7' && {seen}"),
        );
        browser.value("document.querySelector('.back a').click()");
        browser.wait("the list is back", "(({top}) => top >= -5 && top < 300)(document.getElementById('ports').getBoundingClientRect())");
        browser.value("document.querySelector('#topology-body [data-port]').dispatchEvent(new MouseEvent('click', {bubbles: true}))");
        browser.wait("a tap on the drawing, too", seen);
    });
}
