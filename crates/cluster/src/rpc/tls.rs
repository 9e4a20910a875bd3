//! Certificates: a cluster has an authority of its own, and each side shows a certificate of it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// Files for TLS in both directions, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate of the authority that both sides believe.
    pub authority: PathBuf,
    /// This side's certificate, with those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A file for TLS can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path:?} can't be read: {source}")]
pub struct TlsError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError {
        what,
        path: path.to_owned(),
        source,
    })
}

impl TlsFiles {
    fn read(&self) -> Result<(Certificate, Identity), TlsError> {
        let authority = read("the authority's certificate", &self.authority)?;
        let certificate = read("the certificate", &self.certificate)?;
        let key = read("the key", &self.key)?;
        Ok((
            Certificate::from_pem(authority),
            Identity::from_pem(certificate, key),
        ))
    }

    /// A server, which lets nobody in without a certificate of the authority.
    pub(crate) fn server(&self) -> Result<ServerTlsConfig, TlsError> {
        let (authority, identity) = self.read()?;
        let config = ServerTlsConfig::new().identity(identity);
        Ok(config.client_ca_root(authority))
    }

    /// A client, which believes no server without one.
    pub(crate) fn client(&self) -> Result<ClientTlsConfig, TlsError> {
        let (authority, identity) = self.read()?;
        let config = ClientTlsConfig::new().identity(identity);
        Ok(config.ca_certificate(authority))
    }
}
