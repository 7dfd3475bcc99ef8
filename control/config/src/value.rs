//! The small typed values of the configuration. Each type refuses invalid values, so that none can
//! run.

use super::scalar::{FromScalar, Scalar, text_or_number, through_scalar};
use problem::Problem;
use std::borrow::Borrow;
use std::fmt;
use std::path::{Path, PathBuf};
use wire::Mac;

/// A port's name: 1 to 32 letters, digits, `.`, `_`, `-`, because it appears in file names, URLs
/// and tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName(String);

/// Ordered as its text.
impl Borrow<str> for PortName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Largest IP packet, in bytes: 68 (RFC 791) to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(pub u16);

/// A station's address: unicast, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddress(pub Mac);

/// Queue pairs of one port, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues(pub u16);

/// Most open trains per egress queue, 1 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flows(pub u8);

/// Maximum payload of a train in multiples of the MTU, 0 to 255; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthLimit(pub u8);

/// Maximum segments of a train with a pure ACK, 0 to 65535; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckLimit(pub u16);

/// Most addresses learned on a port, 0 to 65535; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacLimit(pub u16);

/// A vNIC's share of a congested uplink relative to others, 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub u8);

/// Most learned addresses of the switch, 16 to 1048576.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacEntries(pub u32);

/// Permissions of the socket, written in octal as `"0660"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// A network device of the host, with a name that Linux allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

/// A network namespace: a name from `ip netns`, or a path, such as `/proc/PID/ns/net` for a
/// container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace(String);

/// The path of a Unix socket: absolute, and no longer than the kernel accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPath(String);

/// A user or a group, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(String);

through_scalar!(
    PortName,
    Mtu,
    MacAddress,
    Queues,
    Flows,
    LengthLimit,
    AckLimit,
    MacLimit,
    MacEntries,
    FileMode,
    HostName,
    Namespace,
    SocketPath,
    Account,
    Weight
);

text_or_number!(Account);

impl SocketPath {
    /// Longest path in bytes: `sun_path` of unix(7) without the terminating null byte.
    const LONGEST: usize = 107;

    /// Returns the socket's path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl Account {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name `port`, so that a port can be made with `..PortConfig::default()`.
impl Default for PortName {
    fn default() -> PortName {
        PortName("port".to_owned())
    }
}

impl PortName {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HostName {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Namespace {
    /// Returns the namespace's path.
    pub fn path(&self) -> PathBuf {
        // An absolute path replaces the directory it is joined to.
        Path::new("/run/netns").join(&self.0)
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns the text if it is `good`, otherwise the problem with `wanted`.
fn text(
    scalar: &Scalar,
    good: impl Fn(&str) -> bool,
    (error, wanted): (&str, &str),
) -> Result<String, Problem> {
    match scalar {
        Scalar::Text(text) if good(text) => Ok(text.clone()),
        Scalar::Text(_) => Err(scalar.problem(error, wanted)),
        _ => Err(scalar.problem(error, &format!("in quotes, {wanted}"))),
    }
}

impl FromScalar for PortName {
    fn read(scalar: &Scalar) -> Result<PortName, Problem> {
        let good = |name: &str| {
            (1..=32).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
                && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        };
        let wanted = "1 to 32 letters, digits, `.`, `_` or `-`, a letter or digit first";
        text(scalar, good, ("not a port name", wanted)).map(PortName)
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.clone())
    }
}

/// Returns whether a name is a file name that stays in its directory.
fn is_file_name(name: &str) -> bool {
    let odd = |c: char| "/%".contains(c) || c.is_whitespace() || c.is_control();
    (1..=255).contains(&name.len()) && name != "." && name != ".." && !name.contains(odd)
}

impl FromScalar for HostName {
    fn read(scalar: &Scalar) -> Result<HostName, Problem> {
        let good = |name: &str| is_file_name(name) && name.len() <= 15 && !name.contains(':');
        let wanted = "1 to 15 bytes without spaces, `/`, `:` and `%`";
        text(scalar, good, ("not a device name", wanted)).map(HostName)
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.clone())
    }
}

impl FromScalar for Namespace {
    fn read(scalar: &Scalar) -> Result<Namespace, Problem> {
        let good = |name: &str| match name.strip_prefix('/') {
            Some(path) => path.split('/').all(is_file_name),
            None => is_file_name(name),
        };
        let wanted = "a name that `ip netns` shows, or a path such as `/proc/PID/ns/net`";
        text(scalar, good, ("not a network namespace", wanted)).map(Namespace)
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.clone())
    }
}

impl FromScalar for SocketPath {
    fn read(scalar: &Scalar) -> Result<SocketPath, Problem> {
        let good = |path: &str| {
            let within = path.len() <= SocketPath::LONGEST && !path.contains(char::is_control);
            let below = path.strip_prefix('/').is_some_and(|rest| {
                rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
            });
            within && below
        };
        let wanted = "an absolute path of at most 107 bytes, such as \"/run/millrace/vm1.sock\"";
        text(scalar, good, ("not the path of a socket", wanted)).map(SocketPath)
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.clone())
    }
}

impl FromScalar for Account {
    fn read(scalar: &Scalar) -> Result<Account, Problem> {
        if let Scalar::Number(number) = scalar
            && let Ok(number) = u32::try_from(*number)
        {
            return Ok(Account(number.to_string()));
        }
        let odd = |c: char| c.is_whitespace() || c.is_control() || "/:".contains(c);
        let good = |name: &str| !name.is_empty() && !name.contains(odd);
        let wanted = "a name or a number, such as \"libvirt-qemu\"";
        text(scalar, good, ("not a user or group", wanted)).map(Account)
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.clone())
    }
}

impl FromScalar for MacAddress {
    fn read(scalar: &Scalar) -> Result<MacAddress, Problem> {
        let wanted = "six pairs of hex digits, such as \"52:54:00:12:34:56\"";
        let is_mac = |text: &str| text.parse::<Mac>().is_ok();
        let text = text(scalar, is_mac, ("not a MAC address", wanted))?;
        let own = text.parse().ok().filter(|mac: &Mac| !mac.is_group() && mac.to_u64() != 0);
        own.map(MacAddress).ok_or_else(|| {
            scalar.problem("not a station's address", "a unicast address that is not all zero")
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.0.to_string())
    }
}

/// Implements reading and writing of whole numbers in a range.
macro_rules! ranged {
    ($($name:ident($inner:ty) = $range:expr;)*) => {$(
        impl FromScalar for $name {
            fn typed(word: &str) -> Scalar {
                Scalar::typed_number(word)
            }

            fn read(scalar: &Scalar) -> Result<$name, Problem> {
                let number = scalar.number($range)?;
                <$inner>::try_from(number)
                    .map($name)
                    .map_err(|_| scalar.problem("out of range", "a smaller number"))
            }

            fn write(&self) -> Scalar {
                Scalar::Number(i64::from(self.0))
            }
        }
    )*};
}

ranged! {
    Mtu(u16) = 68..=65535;
    Queues(u16) = 1..=64;
    Flows(u8) = 1..=128;
    LengthLimit(u8) = 0..=255;
    AckLimit(u16) = 0..=65535;
    MacLimit(u16) = 0..=65535;
    MacEntries(u32) = 16..=1_048_576;
    Weight(u8) = 1..=100;
}

impl FromScalar for FileMode {
    fn read(scalar: &Scalar) -> Result<FileMode, Problem> {
        match scalar {
            Scalar::Text(text) if matches!(text.len(), 3 | 4) && !text.starts_with('+') => {
                u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).map(FileMode)
            }
            _ => None,
        }
        .ok_or_else(|| {
            scalar.problem("not a file mode", "octal digits in quotes, such as \"0660\"")
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(format!("{:04o}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = (text.parse::<PortName>(), text.parse::<HostName>(), text.parse::<MacAddress>());
            let _ = (text.parse::<Mtu>(), text.parse::<FileMode>(), text.parse::<Queues>());
        }

        #[test]
        fn every_mtu_is_in_range_or_refused(number: i64) {
            let read = Mtu::read(&Scalar::Number(number));
            prop_assert_eq!(read.is_ok(), (68..=65535).contains(&number));
        }

        #[test]
        fn names_read_back(name in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}") {
            let read: PortName = name.parse().unwrap();
            prop_assert_eq!(read.as_str(), name);
        }
    }

    /// `--socket-mode 0660` was read as the number 660 and refused, and port `007` became port `7`.
    #[test]
    fn a_word_that_looks_like_a_number_stays_as_typed() {
        assert_eq!("0660".parse(), Ok(FileMode(0o660)));
        assert_eq!("755".parse(), Ok(FileMode(0o755)));
        for mode in ["7", "1777", "0999", "+660", "00660"] {
            assert!(mode.parse::<FileMode>().is_err(), "{mode}");
        }
        for name in ["007", "7", "1e3", "true", "0x10"] {
            assert_eq!(name.parse::<PortName>().map(|name| name.0), Ok(name.to_owned()));
            assert_eq!(name.parse::<HostName>().map(|name| name.0), Ok(name.to_owned()));
            assert_eq!(name.parse::<Account>().map(|name| name.0), Ok(name.to_owned()));
        }
        assert_eq!(("9000".parse(), "4".parse()), (Ok(Mtu(9000)), Ok(Queues(4))));
    }

    #[test]
    fn what_is_refused_names_value_and_remedy() {
        for name in ["", "-vm", "vm/1", "vm 1", "üp", &"x".repeat(33)] {
            assert!(name.parse::<PortName>().is_err(), "{name}");
        }
        for name in ["a:b", "a-device-name-of-20"] {
            assert!(name.parse::<HostName>().is_err(), "{name}");
        }
        for name in ["", ".", "..", "../eth0", "a b"] {
            assert!(name.parse::<HostName>().is_err(), "{name}");
            assert!(name.parse::<Namespace>().is_err(), "{name}");
        }
        for (name, path) in [("vm1", "/run/netns/vm1"), ("/proc/7/ns/net", "/proc/7/ns/net")] {
            assert_eq!(name.parse::<Namespace>().unwrap().path(), Path::new(path));
        }
        assert!("/run/../etc".parse::<Namespace>().is_err());
        assert_eq!(
            "/run/v.sock".parse::<SocketPath>().unwrap().as_path(),
            Path::new("/run/v.sock")
        );
        for path in ["", "/", "v.sock", "/run/../v.sock", "/run//v.sock", &"/x".repeat(54)] {
            assert!(path.parse::<SocketPath>().is_err(), "{path}");
        }
        for name in ["", "a b", "a:b", "a/b"] {
            assert!(name.parse::<Account>().is_err(), "{name}");
        }
        for mac in ["ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01", "vm1"] {
            assert!(mac.parse::<MacAddress>().is_err(), "{mac}");
        }
        assert!("+7".parse::<PortName>().is_err());
        let problem = PortName::read(&Scalar::Number(7)).unwrap_err();
        assert!(problem.wanted.starts_with("in quotes, 1 to 32"), "{problem}");
        let account = Account::read(&Scalar::Number(107));
        assert_eq!(account, "107".parse());
        assert!(Account::read(&Scalar::Number(-1)).is_err());
        let problem = "20".parse::<Mtu>().unwrap_err();
        assert_eq!(
            (problem.seen.as_str(), problem.wanted.as_str()),
            ("20", "a number from 68 to 65535")
        );
        assert!(
            FileMode::read(&Scalar::Number(660)).is_err()
                && FileMode::read(&Scalar::Text("0660".into())).is_ok()
        );
    }
}
