//! Networks on the command line: `NAME=TOKEN@ADDRESS:PORT,…`, for `mtu check` and `migrate check`.

use path_mtu::check::Network;
use path_mtu::session::Host;
use problem::token::Whereabouts;
use std::str::FromStr;

/// Responders in one network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    name: String,
    responders: Vec<Whereabouts>,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let usage = "write NAME=TOKEN@ADDRESS:PORT[,TOKEN@ADDRESS:PORT…], such as management=TOKEN@192.0.2.1:5910";
        let (name, list) = text.split_once('=').ok_or(usage)?;
        let is_plain = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(format!("a network's name has letters, digits, ., _ and -: {usage}"));
        }
        let read = |one: &str| one.trim().parse().map_err(|why| format!("{one:?}: {why}"));
        let responders = list.split(',').map(read).collect::<Result<_, _>>()?;
        Ok(Named { name: name.to_owned(), responders })
    }
}

/// Puts responders in their networks: those without a name in one, those of one name in another.
pub(crate) fn networks(
    nameless: impl IntoIterator<Item = Whereabouts>,
    named: impl IntoIterator<Item = Named>,
) -> Vec<Network> {
    let mut networks: Vec<Network> = Vec::new();
    let mut add = |name: Option<String>, at: Whereabouts| {
        let host = Host { name: at.at.clone(), at, netns: None };
        match networks.iter_mut().find(|network| network.name == name) {
            Some(network) => network.hosts.push(host),
            None => networks.push(Network { name, hosts: vec![host] }),
        }
    };
    nameless.into_iter().for_each(|at| add(None, at));
    for Named { name, responders } in named {
        responders.into_iter().for_each(|at| add(Some(name.clone()), at));
    }
    networks
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn responders_of_one_name_are_one_network() {
        let named =
            |text: &str| -> Named { text.replace("T@", &format!("{TOKEN}@")).parse().unwrap() };
        let all =
            [named("lm=T@10.1.0.1:1,T@10.1.0.2:1"), named("lan=T@a:1"), named("lm=T@[fd00::1]:1")];
        let networks = networks([format!("{TOKEN}@b:1").parse().unwrap()], all);
        let found: Vec<_> =
            networks.iter().map(|it| (it.name.as_deref(), it.hosts.len())).collect();
        assert_eq!(found, [(None, 1), (Some("lm"), 3), (Some("lan"), 1)]);
        assert_eq!(networks[1].hosts[2].name, "[fd00::1]:1");
    }

    #[test]
    fn what_is_no_network_is_told_with_an_example() {
        let at = format!("{TOKEN}@10.0.0.1:5910");
        for (text, words) in [
            (at.as_str(), "such as management="),
            (&format!("={at}"), "name has letters"),
            (&format!("a b={at}"), "name has letters"),
            (&format!("lan={at},10.0.0.2:5910"), "\"10.0.0.2:5910\": write TOKEN@ADDRESS:PORT"),
            ("lan=", "write TOKEN@ADDRESS:PORT"),
        ] {
            let said = text.parse::<Named>().unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
