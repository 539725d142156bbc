//! TLS 1.3 over kernel TCP as a peer, with AES-128-GCM, the fastest suite that TLS
//! programs have. The library is rustls. The sides know each other by a raw public
//! key (RFC 7250), which the offer carries.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use ::ring::rand::SystemRandom;
use ::ring::signature::Ed25519KeyPair;
use portolan_hosts::failure::{Context, Failure, Result, fail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{cipher_suite, default_provider, sign};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::peers::tcp::{Bytes, Messages, taken};

/// How it is measured, in a few words.
pub const METHOD: &str = "TLS 1.3 by rustls, AES-128-GCM";

/// The only suite.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..default_provider()
    })
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("TLS: {error}"))
}

/// The side that is connected to, before that.
pub struct Listening {
    listener: TcpListener,
    key: Arc<dyn SigningKey>,
    config: Arc<ServerConfig>,
}

impl Listening {
    /// Takes a connection that comes by `listener`.
    pub fn new(listener: TcpListener) -> Result<Self> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(failed)?;
        let pair = PrivatePkcs8KeyDer::from(pair.as_ref());
        let key = sign::any_eddsa_type(&pair).map_err(failed)?;
        Ok(Self {
            listener,
            config: server_config(&key)?,
            key,
        })
    }

    fn public_key(&self) -> Result<SubjectPublicKeyInfoDer<'static>> {
        let key = self
            .key
            .public_key()
            .map(SubjectPublicKeyInfoDer::into_owned);
        key.ok_or_else(|| failed("a key without its public half"))
    }

    /// What the other side has to be told.
    pub fn offer(&self) -> Result<String> {
        let key = self.public_key()?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{} {key}", self.listener.local_addr()?))
    }

    /// Where connections wait.
    pub const fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Takes the connection that waits.
    pub fn accept(&self, size_max: usize) -> Result<Tls> {
        let (stream, _) = self.listener.accept().context("accepting a connection")?;
        Tls::new(self.session(stream)?, size_max)
    }

    /// Over a connection that was accepted; the handshake is yet to be made.
    pub fn session(&self, stream: TcpStream) -> Result<Session> {
        let config = Arc::clone(&self.config);
        let session = ServerConnection::new(config).map_err(failed)?.into();
        Ok(Session { stream, session })
    }
}

/// How all connections are made that come by a listener.
fn server_config(key: &Arc<dyn SigningKey>) -> Result<Arc<ServerConfig>> {
    let public = key.public_key();
    let public = public.ok_or_else(|| failed("a key without its public half"))?;
    let certificate = CertificateDer::from(public.to_vec());
    let certified = CertifiedKey::new(vec![certificate], Arc::clone(key));
    let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    // No connection is resumed.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Knows the other side by its key.
#[derive(Debug)]
struct Expects {
    key: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Expects {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if **key == *self.key {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("another key".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.key, signature, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// One connection, with its keys.
pub struct Session {
    stream: TcpStream,
    session: Connection,
}

/// Messages over one.
pub type Tls = Messages<Session>;

impl Tls {
    /// Over a connection that stands, after the handshake.
    fn new(mut by: Session, size_max: usize) -> Result<Self> {
        let Session { stream, session } = &mut by;
        while session.is_handshaking() {
            session.complete_io(stream).context("TLS handshake")?;
        }
        Self::over(by, size_max)
    }

    /// Connects to the other side's offer.
    pub fn connect(offer: &str, size_max: usize) -> Result<Self> {
        let connector = Connector::new(offer)?;
        let address = connector.address;
        let stream = TcpStream::connect(address).context(format!("connecting to {address}"))?;
        Self::new(connector.session(stream)?, size_max)
    }
}

/// The side that connects, before that.
pub struct Connector {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Knows whom to expect from the other side's offer.
    pub fn new(offer: &str) -> Result<Self> {
        let Some((address, key)) = offer.split_once(' ') else {
            return fail(format!("{offer:?} is no address with a key"));
        };
        let digits = key.as_bytes().chunks(2).map(std::str::from_utf8);
        let bytes = digits.map(|two| u8::from_str_radix(two.ok()?, 16).ok());
        let Some(key) = bytes.collect::<Option<Vec<u8>>>() else {
            return fail(format!("{offer:?} has no key"));
        };
        let expects = Expects {
            key: key.into(),
            provider: provider(),
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(expects))
            .with_no_client_auth();
        let address = address.parse();
        Ok(Self {
            address: address.map_err(|_| failed(format!("{offer:?} has no address")))?,
            config: Arc::new(config),
        })
    }

    /// Where the other side listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Over a connection to there; the handshake is yet to be made.
    pub fn session(&self, stream: TcpStream) -> Result<Session> {
        let name = ServerName::from(self.address.ip());
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        let session = session.map_err(failed)?.into();
        Ok(Session { stream, session })
    }
}

impl Bytes for Session {
    fn connection(&self) -> &TcpStream {
        &self.stream
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        // What is sealed leaves before more is.
        while taken < bytes.len() && self.flush()? {
            let rest = &bytes[taken..];
            taken += self.session.writer().write(rest).context("TLS send")?;
        }
        Ok(taken)
    }

    #[inline]
    fn flush(&mut self) -> Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("TLS send"),
            }
        }
        Ok(true)
    }

    #[inline]
    fn receive(&mut self, room: &mut [u8]) -> Result<usize> {
        // What is open already: the room was too small, or it came with the handshake.
        let open = taken("TLS", self.session.reader().read(room))?;
        if open > 0 || taken("TLS", self.session.read_tls(&mut self.stream))? == 0 {
            return Ok(open);
        }
        self.session.process_new_packets().map_err(failed)?;
        taken("TLS", self.session.reader().read(room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::drive::Channel as _;

    const SIZE: usize = 3 << 20;

    #[test]
    fn messages_come_whole_and_from_who_was_expected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = Listening::new(listener).unwrap();
        let offer = listening.offer().unwrap();
        let leader = std::thread::spawn(move || {
            let mut leader = Tls::connect(&offer, SIZE).unwrap();
            for size in [8, 20_000, SIZE] {
                while !leader.try_send(size).unwrap() {}
                while leader.poll(8).unwrap() == 0 {}
            }
            leader.received()
        });
        let mut follower = listening.accept(SIZE).unwrap();
        for size in [8, 20_000, SIZE] {
            while follower.poll(size).unwrap() == 0 {}
            while !follower.try_send(8).unwrap() {}
        }
        assert_eq!(follower.received(), (8 + 20_000 + SIZE) as u64);
        assert_eq!(leader.join().unwrap(), 24);
    }

    #[test]
    fn another_key_is_refused() {
        let [one, other] = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Listening::new(listener).unwrap()
        });
        let [address, key] = [&one, &other].map(|it| it.offer().unwrap());
        let address = address.split(' ').next().unwrap();
        let offer = format!("{address} {}", key.split(' ').nth(1).unwrap());
        let leader = std::thread::spawn(move || Tls::connect(&offer, 8).is_err());
        assert!(one.accept(8).is_err() && leader.join().unwrap());
        assert!(Tls::connect("127.0.0.1:1", 8).is_err());
    }
}
