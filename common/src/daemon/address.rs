//! Where a daemon listens, in Go's notation: `:8942` is port 8942 on every interface.

use std::{fmt, io, net::Ipv4Addr, net::Ipv6Addr, str::FromStr};

use tokio::net::TcpListener;

/// A host and a port to listen on. No host means every interface; port 0 means any free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    host: Option<String>,
    port: u16,
}

impl ListenAddress {
    /// Starts to listen.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        let Some(host) = &self.host else {
            // The IPv6 wildcard takes IPv4 as well, as Go does it; a machine without IPv6 refuses it.
            return match TcpListener::bind((Ipv6Addr::UNSPECIFIED, self.port)).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port)).await
                }
                bound => bound,
            };
        };
        TcpListener::bind((host.as_str(), self.port)).await
    }
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing that ends in a colon and a port.
    #[error("missing port in address {0:?}: write :PORT, HOST:PORT or [IPv6]:PORT")]
    MissingPort(String),
    /// The port is no number from 0 to 65535.
    #[error("invalid port {port:?} in address {text:?}: use a number from 0 (any free port) to 65535")]
    InvalidPort {
        /// The whole text.
        text: String,
        /// The port in it.
        port: String,
    },
    /// An IPv6 address without brackets.
    #[error("too many colons in address {0:?}: write an IPv6 address in brackets, [::1]:8942")]
    TooManyColons(String),
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| AddressError::MissingPort(text.to_owned()))?;
        if port.ends_with(']') {
            return Err(AddressError::MissingPort(text.to_owned()));
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(AddressError::TooManyColons(text.to_owned()));
        }
        let port = port.parse().map_err(|_| AddressError::InvalidPort {
            text: text.to_owned(),
            port: port.to_owned(),
        })?;
        let host = bare.unwrap_or(host);
        Ok(Self {
            host: (!host.is_empty()).then(|| host.to_owned()),
            port,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            Some(host) => write!(f, "{host}:{}", self.port),
            None => write!(f, ":{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, host, port) in [
            (":8942", None, 8942),
            ("127.0.0.1:0", Some("127.0.0.1"), 0),
            ("localhost:8943", Some("localhost"), 8943),
            ("[::1]:8944", Some("::1"), 8944),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            let expected = ListenAddress {
                host: host.map(str::to_owned),
                port,
            };
            assert_eq!(address, expected, "{text}");
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("[]:1".parse::<ListenAddress>().unwrap().to_string(), ":1");
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            ("", "missing port in address \"\""),
            ("8942", "missing port in address \"8942\": write :PORT"),
            ("[::1]", "missing port"),
            ("::1:8942", "too many colons in address \"::1:8942\""),
            (":", "invalid port \"\" in address \":\""),
            (":http", "invalid port \"http\""),
            (
                ":65536",
                "invalid port \"65536\" in address \":65536\": use a number from 0",
            ),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn port_0_is_any_free_port() {
        let listener = "127.0.0.1:0"
            .parse::<ListenAddress>()
            .unwrap()
            .bind()
            .await
            .unwrap();
        assert_ne!(listener.local_addr().unwrap().port(), 0);
        let listener = ":0".parse::<ListenAddress>().unwrap().bind().await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[\\[\\]:0-9a-z.]{0,20}|.{0,20}") {
            let _any = text.parse::<ListenAddress>();
        }
    }
}
