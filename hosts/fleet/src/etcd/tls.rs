//! Mutual TLS with etcd: etcd's certificate has to name the host that was connected to, and etcd
//! requires this client's.
//!
//! Only the authorities of `--cacert` are trusted, not those of the system: etcd is not a public
//! server.

use super::access::half;
use super::{Endpoint, Identity};
use crate::secret;
use problem::Problem;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Later than any certificate ends: the year 9999, in seconds since 1970.
const LATE: Duration = Duration::from_secs(253_402_300_799);

/// The settings of TLS connections.
pub(super) struct Tls {
    connector: TlsConnector,
    cacert: PathBuf,
    /// Used only to find out when certificates end.
    verifier: Arc<dyn ClientCertVerifier>,
    /// When this client's certificate ends, in seconds since 1970; `None` if it has none.
    own_end: Option<u64>,
    /// When etcd's last certificate ends, in seconds since 1970; 0 if it has shown none.
    etcd_end: AtomicU64,
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tls {{ cacert: {:?} }}", self.cacert)
    }
}

impl Tls {
    /// Reads the certificates and the key.
    pub(super) fn read(identity: &Identity) -> Result<Tls, Problem> {
        let Some(cacert) = identity.cacert.clone() else {
            return Err(Problem::new(
                "https:// needs the authority that signed etcd's certificate",
            )
            .seen("no --cacert")
            .wanted("a PEM file")
            .remedy("name it with --cacert, or its directory with --credentials"));
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("authorities", &cacert)? {
            roots.add(certificate).map_err(|error| unusable("authorities", &cacert, &error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable("authorities", &cacert, &error))?;
        let mut own_end = None;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| Problem::new("TLS 1.3 cannot be used").seen(error))?
            .with_root_certificates(roots);
        let mut config = match (&identity.cert, &identity.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates("certificate", cert)?;
                own_end = chain.first().and_then(|first| end_of(&*verifier, first));
                builder
                    .with_client_auth_cert(chain, private_key(key)?)
                    .map_err(|error| unusable("certificate", cert, &error))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => return Err(half("--cert", "--key")),
            (None, Some(_)) => return Err(half("--key", "--cert")),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Tls { connector, cacert, verifier, own_end, etcd_end: AtomicU64::new(0) })
    }

    /// Runs the TLS handshake on a connection. Fails if either side refuses the other's
    /// certificate, or the connection ends.
    pub(super) async fn secure(
        &self,
        endpoint: &Endpoint,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, io::Error> {
        let name = ServerName::try_from(endpoint.host().to_owned()).map_err(io::Error::other)?;
        let stream = self.connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        if let Some(end) = shown.and_then(|first| end_of(&*self.verifier, first)) {
            self.etcd_end.store(end, Ordering::Relaxed);
        }
        Ok(stream)
    }

    /// Returns when the certificates end, this client's and etcd's, in seconds since 1970.
    pub(super) fn ends(&self) -> [Option<u64>; 2] {
        let etcd_end = self.etcd_end.load(Ordering::Relaxed);
        [self.own_end, Some(etcd_end).filter(|end| *end != 0)]
    }

    /// Returns the problem if TLS failed; `None` if the connection did.
    pub(super) fn problem(
        &self,
        endpoint: &Endpoint,
        error: &(dyn Error + 'static),
    ) -> Option<Problem> {
        let error = cause(error)?;
        if let rustls::Error::AlertReceived(alert) = error {
            return Some(alerted(endpoint, *alert));
        }
        let problem = Problem::new(format!("{endpoint} is not trusted to be etcd"))
            .seen(error)
            .wanted(format!(
                "a certificate in force for {}, signed by an authority in {}",
                endpoint.host(),
                self.cacert.display()
            ));
        Some(problem.remedy(
            "compare --etcd and --cacert with etcd's --cert-file: `openssl x509 -text -in FILE` shows it",
        ))
    }
}

/// Returns when a certificate ends. rustls tells that only in the error of verifying an expired
/// one, so it is verified for a time at which all have expired.
fn end_of(verifier: &dyn ClientCertVerifier, certificate: &CertificateDer<'_>) -> Option<u64> {
    let verified = verifier.verify_client_cert(certificate, &[], UnixTime::since_unix_epoch(LATE));
    match verified {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// Returns the error of rustls in a chain of errors.
fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(inner) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(inner);
        }
        if let Some(inner) = inner {
            next = Some(inner);
            continue;
        }
        next = error.source();
    }
    None
}

fn alerted(endpoint: &Endpoint, alert: AlertDescription) -> Problem {
    Problem::new(format!("{endpoint} refuses this client's certificate"))
        .seen(format!("the alert {alert:?}"))
        .wanted("a certificate in force, signed by an authority in etcd's --trusted-ca-file")
        .remedy("name it with --cert and --key, or its directory with --credentials")
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let bytes = std::fs::read(path).map_err(|error| unusable(what, path, &error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable(what, path, &"no PEM section CERTIFICATE")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(what, path, &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let bytes = secret::read("the key of the client certificate", path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| unusable("key", path, &error))
}

fn unusable(what: &str, path: &Path, error: &dyn fmt::Display) -> Problem {
    Problem::new(format!("the {what} in {} cannot be used", path.display()))
        .seen(error)
        .wanted("a PEM file that belongs to the other files given")
        .remedy("`millrace fleet certificates` writes files that go together")
}
