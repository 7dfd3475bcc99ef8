//! Makes the fleet's certificates: an authority, etcd's certificate, and one for each host and for
//! the people who run the fleet.
//!
//! They are made without etcd, so that etcd can start with them. Existing ones stay, so the same
//! call adds a host. Each identity has a directory of its own, which is copied to where it is used;
//! the authority's key is copied nowhere.
//!
//! No certificate has a common name, because etcd accepts it as a user without a password: that of
//! a client's certificate at its gRPC port, and that of its own certificate for gateway requests
//! without the header `Accept`.

use crate::etcd::access::file;
use crate::{Name, secret};
use daemon::Replacement;
use problem::Problem;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

const AUTHORITY_KEY: &str = "ca.key";
const AUTHORITY_DAYS: u32 = 3650;
/// Certificates are valid from this long ago, because clocks differ.
const SKEW: Duration = Duration::hours(1);

/// The certificates to be made.
pub struct Certificates {
    /// The directory.
    pub directory: PathBuf,
    /// The names and addresses by which clients reach etcd's members. If empty, etcd's certificate
    /// is not made.
    pub members: Vec<String>,
    /// The hosts that get certificates.
    pub hosts: Vec<Name>,
    /// Number of days for which the certificates are valid.
    pub days: u32,
    /// Whether existing ones are replaced.
    pub renew: bool,
}

/// Returns the directory of a host's files, below that of `bootstrap` and `certificates`.
pub(crate) fn host_directory(directory: &Path, host: &Name) -> PathBuf {
    directory.join("hosts").join(host.as_str())
}

type Authority = (Issuer<'static, KeyPair>, String);

impl Certificates {
    /// Makes the certificates that are missing. `tell` gets a line for each.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written, or a member's certificate exists and does not
    /// name all members.
    pub fn run(&self, tell: &mut dyn FnMut(&str)) -> Result<(), Problem> {
        secret::make_directory(&self.directory)?;
        let authority = self.authority(tell)?;
        if !self.members.is_empty() {
            let place = (self.directory.join("etcd"), "server.crt", "server.key");
            self.certificate(&authority, place, || member(&self.members), tell)?;
            check_members(&self.directory.join("etcd/server.crt"), &self.members)?;
        }
        let people = ["root", "operator"].map(|it| (self.directory.join(it), it.to_owned()));
        let hosts = self
            .hosts
            .iter()
            .map(|host| (host_directory(&self.directory, host), format!("host {host}")));
        for (directory, unit) in people.into_iter().chain(hosts) {
            let place = (directory, file::CERT, file::KEY);
            self.certificate(&authority, place, || Ok(client(&unit)), tell)?;
        }
        Ok(())
    }

    /// Returns the authority, which is made if there is none.
    fn authority(&self, tell: &mut dyn FnMut(&str)) -> Result<Authority, Problem> {
        let [certificate, key] =
            [file::CACERT, AUTHORITY_KEY].map(|name| self.directory.join(name));
        match (certificate.exists(), key.exists()) {
            (true, true) => read_authority(&certificate, &key),
            (false, false) => {
                let pair = KeyPair::generate().map_err(|it| not_made("authority", &it))?;
                let params = self.dated(authority(), AUTHORITY_DAYS);
                let made = params.self_signed(&pair).map_err(|it| not_made("authority", &it))?;
                secret::write(&key, &pair.serialize_pem())?;
                write(&certificate, &made.pem())?;
                tell(&format!("made the authority: {}", certificate.display()));
                Ok((Issuer::new(authority(), pair), made.pem()))
            }
            (there, _) => {
                let (seen, missing) = if there { (certificate, key) } else { (key, certificate) };
                Err(Problem::new("half of the authority is missing")
                    .seen(format!("{} without {}", seen.display(), missing.display()))
                    .wanted("both files, or neither")
                    .remedy("restore the missing file, or begin in an empty directory"))
            }
        }
    }

    fn certificate(
        &self,
        (issuer, authority): &Authority,
        (directory, certificate, key): (PathBuf, &str, &str),
        params: impl FnOnce() -> Result<CertificateParams, Problem>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), Problem> {
        let (certificate, key) = (directory.join(certificate), directory.join(key));
        if certificate.exists() && key.exists() && !self.renew {
            return Ok(());
        }
        secret::make_directory(&directory)?;
        let failed = |error: &dyn Display| not_made(&certificate.display().to_string(), error);
        let pair = KeyPair::generate().map_err(|error| failed(&error))?;
        let made = self.dated(params()?, self.days).signed_by(&pair, issuer);
        let made = made.map_err(|error| failed(&error))?;
        // Removed, because its key was not written: it then counts as missing.
        let _ = std::fs::remove_file(&certificate);
        secret::write(&key, &pair.serialize_pem())?;
        write(&directory.join(file::CACERT), authority)?;
        write(&certificate, &made.pem())?;
        tell(&format!("made {}, in force for {} days", certificate.display(), self.days));
        Ok(())
    }

    fn dated(&self, mut params: CertificateParams, days: u32) -> CertificateParams {
        let now = OffsetDateTime::now_utc();
        params.not_before = now - SKEW;
        params.not_after = now + Duration::days(days.into());
        params
    }
}

/// Returns the parameters of a certificate with the fleet and this unit of it as subject.
fn named(unit: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Millrace fleet");
    params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
    params.use_authority_key_identifier_extension = true;
    params
}

/// Returns the authority's parameters. They are the same in each run, as all certificates name this
/// issuer.
fn authority() -> CertificateParams {
    let mut params = named("authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Returns the parameters of etcd's certificate, which its gateway and members use as clients, too.
fn member(names: &[String]) -> Result<CertificateParams, Problem> {
    let mut params = named("etcd");
    let alternatives = CertificateParams::new(names.to_vec()).map_err(|error| {
        Problem::new("not the names of members of etcd")
            .seen(format!("{}: {error}", names.join(", ")))
            .wanted("host names or addresses, without scheme and port")
            .remedy("write it like --member etcd1.example --member 10.0.0.1")
    })?;
    params.subject_alt_names = alternatives.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Refuses a certificate from an earlier run that does not name all of these members.
fn check_members(certificate: &Path, members: &[String]) -> Result<(), Problem> {
    let unusable = |error: &dyn Display| {
        Problem::new(format!("{} cannot be used", certificate.display()))
            .seen(error)
            .wanted("the certificate of etcd's members")
            .remedy("replace all certificates with --renew")
    };
    let der = CertificateDer::from_pem_file(certificate).map_err(|error| unusable(&error))?;
    let parsed = ParsedCertificate::try_from(&der).map_err(|error| unusable(&error))?;
    let is_named = |member: &&String| {
        let name = ServerName::try_from(member.as_str());
        name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    let Some(member) = members.iter().find(|member| !is_named(member)) else { return Ok(()) };
    Err(Problem::new(format!("etcd's certificate does not name {member}"))
        .seen(format!("{}, which an earlier run made", certificate.display()))
        .wanted(format!("a certificate for {}", members.join(", ")))
        .remedy("give all members with --member, and --renew, which replaces all certificates"))
}

fn client(unit: &str) -> CertificateParams {
    let mut params = named(unit);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn read_authority(certificate: &Path, key: &Path) -> Result<Authority, Problem> {
    let unusable = |path: &Path, error: &dyn Display| {
        Problem::new(format!("the authority in {} cannot be used", path.display()))
            .seen(error)
            .wanted("the files that `millrace fleet certificates` made together")
            .remedy("restore them, or make another authority in an empty directory")
    };
    let text = String::from_utf8(secret::read("the key of the authority", key)?)
        .map_err(|error| unusable(key, &error))?;
    let pair = KeyPair::from_pem(&text).map_err(|error| unusable(key, &error))?;
    let pem = std::fs::read_to_string(certificate).map_err(|it| unusable(certificate, &it))?;
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| unusable(certificate, &error))?;
    let public = pair.subject_public_key_info();
    if !der.windows(public.len()).any(|part| part == public) {
        return Err(unusable(
            certificate,
            &format!("a certificate of another key than {}", key.display()),
        ));
    }
    Ok((Issuer::new(authority(), pair), pem))
}

fn write(path: &Path, text: &str) -> Result<(), Problem> {
    Replacement::write(path, text).map_err(|error| secret::unwritten(path, &error))
}

fn not_made(what: &str, error: &dyn Display) -> Problem {
    Problem::new(format!("{what} cannot be made")).seen(error)
}

#[cfg(test)]
mod tests;
