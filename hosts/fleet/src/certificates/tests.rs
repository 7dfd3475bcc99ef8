//! Certificates are judged by the library that clients use, against a server with the member's
//! certificate.

use super::*;
use crate::etcd::{Access, Etcd, Identity};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

fn made(directory: &Path, hosts: &[&str], renew: bool) -> Result<Vec<String>, Problem> {
    let mut told = Vec::new();
    let certificates = Certificates {
        directory: directory.to_owned(),
        members: vec!["etcd.example".to_owned(), "127.0.0.1".to_owned()],
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        days: 30,
        renew,
    };
    certificates.run(&mut |line| told.push(line.to_owned()))?;
    Ok(told)
}

#[test]
fn a_second_run_adds_only_what_is_missing_and_a_client_can_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("fleet");
    assert_eq!(made(&directory, &["a"], false).unwrap().len(), 5);
    let first = std::fs::read(directory.join("hosts/a/client.crt")).unwrap();
    let told = made(&directory, &["a", "b"], false).unwrap();
    assert!(told.len() == 1 && told[0].contains("hosts/b/client.crt"), "{told:?}");
    assert_eq!(std::fs::read(directory.join("hosts/a/client.crt")).unwrap(), first);
    for host in ["hosts/a", "hosts/b", "operator", "root"] {
        let identity = Identity::default().or_from(&directory.join(host)).unwrap();
        let endpoint = "https://etcd.example:2379".parse().unwrap();
        Access::new(&[endpoint], &identity, false).unwrap();
    }
    assert_eq!(made(&directory, &["a"], true).unwrap().len(), 4, "the authority stays");
    assert_ne!(std::fs::read(directory.join("hosts/a/client.crt")).unwrap(), first);
}

#[test]
fn a_member_that_the_certificate_of_an_earlier_run_does_not_name_is_refused() {
    let folder = fleet();
    let members = ["etcd.example", "10.0.0.9"].map(str::to_owned).to_vec();
    let run = |renew| {
        let (directory, members) = (folder.path().to_owned(), members.clone());
        Certificates { directory, members, hosts: Vec::new(), days: 30, renew }.run(&mut |_| ())
    };
    let problem = run(false).unwrap_err();
    assert!(problem.error.ends_with("does not name 10.0.0.9"), "{problem}");
    assert!(problem.remedy.contains("--renew"), "{problem}");
    assert_eq!(run(true), Ok(()));
    assert_eq!(run(false), Ok(()));
}

#[test]
fn no_key_is_readable_by_others() {
    let folder = fleet();
    for key in ["ca.key", "etcd/server.key", "hosts/a/client.key", "root/client.key"] {
        let mode = std::fs::metadata(folder.path().join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
    // Nor does the directory of a host hold the authority's key.
    assert!(!folder.path().join("hosts/a/ca.key").exists());
}

/// Its attribute type, 2.5.4.3, is in DER these five bytes.
#[test]
fn no_certificate_has_a_common_name_which_etcd_would_take_for_a_user() {
    let folder = fleet();
    for file in ["ca.crt", "etcd/server.crt", "hosts/a/client.crt", "root/client.crt"] {
        let pem = std::fs::read(folder.path().join(file)).unwrap();
        let der = CertificateDer::from_pem_slice(&pem).unwrap();
        assert!(!der.windows(5).any(|bytes| bytes == [6, 3, 0x55, 4, 3]), "{file}");
    }
}

#[test]
fn an_authority_that_lacks_its_key_or_has_another_is_refused() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    made(one.path(), &[], false).unwrap();
    made(other.path(), &[], false).unwrap();
    let key = one.path().join("ca.key");
    std::fs::copy(other.path().join("ca.key"), &key).unwrap();
    let problem = made(one.path(), &["a"], false).unwrap_err();
    assert!(problem.seen.contains("a certificate of another key"), "{problem}");
    std::fs::remove_file(&key).unwrap();
    let problem = made(one.path(), &["a"], false).unwrap_err();
    assert!(problem.error.contains("half of the authority"), "{problem}");
}

#[test]
fn a_member_with_a_scheme_in_its_name_is_refused() {
    let problem = member(&["ü.example".to_owned()]).unwrap_err();
    assert!(problem.remedy.contains("--member etcd1.example"), "{problem}");
}

/// Starts a server with this certificate, which asks its clients for one of the authority in
/// `directory`. Returns its port.
fn serve(directory: &Path, certificate: &str, key: &str) -> u16 {
    let mut roots = RootCertStore::empty();
    let authority = std::fs::read(directory.join("ca.crt")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, socket.unwrap());
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
                let _ = stream.flush();
            }
        }
    });
    port
}

/// Serves with the certificate of this name in a part of the directory.
fn serve_from(directory: &Path, part: &str, name: &str) -> u16 {
    let read = |kind| directory.join(part).join(format!("{name}.{kind}"));
    let [certificate, key] = ["crt", "key"].map(|it| std::fs::read_to_string(read(it)).unwrap());
    serve(directory, &certificate, &key)
}

/// Returns a fleet with one host.
fn fleet() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), &["a"], false).unwrap();
    folder
}

/// What comes of a request to this port as this identity.
fn asked(host: &str, port: u16, identity: &Identity) -> Result<(), Problem> {
    let endpoint = format!("https://{host}:{port}").parse().unwrap();
    let etcd = Etcd::new(Arc::new(Access::new(&[endpoint], identity, false)?))?;
    Ok(etcd.get("key").map(drop)?)
}

#[test]
fn a_client_believes_only_a_certificate_in_force_of_its_authority_for_the_host_it_asks() {
    let [folder, other] = [(); 2].map(|()| fleet());
    let (directory, other) = (folder.path(), other.path());
    let port = serve_from(directory, "etcd", "server");
    let identity = Identity::default().or_from(&directory.join("hosts/a")).unwrap();
    assert_eq!(asked("127.0.0.1", port, &identity), Ok(()));

    let problem = asked("localhost", port, &identity).unwrap_err();
    assert!(problem.error.ends_with("is not trusted to be etcd"), "{problem}");
    assert!(problem.seen.contains("not valid for name"), "{problem}");
    let stranger = Identity { cacert: Some(other.join("ca.crt")), ..identity.clone() };
    let problem = asked("127.0.0.1", port, &stranger).unwrap_err();
    assert!(problem.seen.contains("invalid peer certificate"), "{problem}");
    // A host cannot pass for etcd.
    let port = serve_from(directory, "hosts/a", "client");
    assert!(asked("127.0.0.1", port, &identity).unwrap_err().error.contains("is not trusted"));
}

#[test]
fn it_is_known_when_the_own_certificate_and_etcds_end() {
    let folder = fleet();
    let port = serve_from(folder.path(), "etcd", "server");
    let identity = Identity::default().or_from(&folder.path().join("hosts/a")).unwrap();
    let endpoint = format!("https://127.0.0.1:{port}").parse().unwrap();
    let access = Arc::new(Access::new(&[endpoint], &identity, false).unwrap());
    let ends = |access: &Access| {
        let days =
            |(whose, end): (_, u64)| (whose, (end + 60).saturating_sub(crate::now()) / 86_400);
        access.certificates_end().into_iter().map(days).collect::<Vec<_>>()
    };
    assert_eq!(ends(&access), [("host", 30)]);
    Etcd::new(Arc::clone(&access)).unwrap().get("key").unwrap();
    assert_eq!(ends(&access), [("host", 30), ("etcd", 30)]);
}

#[test]
fn an_expired_certificate_is_refused_with_its_date() {
    let folder = fleet();
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| folder.path().join(name));
    let (issuer, _) = read_authority(&certificate, &key).unwrap();
    let pair = KeyPair::generate().unwrap();
    let mut params = member(&["127.0.0.1".to_owned()]).unwrap();
    params.not_before = OffsetDateTime::now_utc() - Duration::days(2);
    params.not_after = OffsetDateTime::now_utc() - Duration::days(1);
    let expired = params.signed_by(&pair, &issuer).unwrap();
    let port = serve(folder.path(), &expired.pem(), &pair.serialize_pem());
    let identity = Identity::default().or_from(&folder.path().join("hosts/a")).unwrap();
    let problem = asked("127.0.0.1", port, &identity).unwrap_err();
    assert!(problem.seen.contains("expired"), "{problem}");
}

#[test]
fn a_client_whose_certificate_is_missing_or_foreign_learns_that_it_was_refused() {
    let [folder, other] = [(); 2].map(|()| fleet());
    let (directory, other) = (folder.path(), other.path());
    let port = serve_from(directory, "etcd", "server");
    let cacert = Some(directory.join("ca.crt"));
    let nobody = Identity { cacert: cacert.clone(), ..Identity::default() };
    let foreign = Identity::default().or_from(&other.join("hosts/a")).unwrap();
    for identity in [nobody, Identity { cacert, ..foreign }] {
        let problem = asked("127.0.0.1", port, &identity).unwrap_err();
        assert!(problem.error.ends_with("refuses this client's certificate"), "{problem}");
        assert!(problem.remedy.contains("--cert and --key"), "{problem}");
    }
}
