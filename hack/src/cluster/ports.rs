//! Which ports and which subnet a new cluster takes: none that another cluster has, none that is in use.
//! Whether one is in use is a question that the caller answers, so the choice itself is pure.

use std::{collections::BTreeSet, net::TcpListener};

use anyhow::{Result, ensure};

/// Ports below the range from which Linux takes those of outgoing connections, so that none of these takes ours
/// between the choice and the start of the server.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Chooses some ports, beginning to look at a place that differs between callers.
///
/// # Errors
/// When there are not enough free ones.
pub(super) fn choose(
    count: usize,
    seed: u32,
    taken: &BTreeSet<u16>,
    is_free: impl Fn(u16) -> bool,
) -> Result<Vec<u16>> {
    let width = u32::from(RANGE.end - RANGE.start);
    // Neighbouring seeds (process ids) begin far from each other.
    let first = seed.wrapping_mul(7_919) % width;
    let ports: Vec<u16> = (0..width)
        .filter_map(|i| u16::try_from((first + i) % width).ok())
        .map(|offset| RANGE.start + offset)
        .filter(|port| !taken.contains(port) && is_free(*port))
        .take(count)
        .collect();
    ensure!(
        ports.len() == count,
        "no {count} free ports between {} and {}",
        RANGE.start,
        RANGE.end
    );
    Ok(ports)
}

/// Whether nobody listens on this port of the loopback interface.
#[must_use]
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chosen_ports_are_free_and_differ(seed: u32, taken in prop::collection::btree_set(RANGE, 0..50), odd: bool) {
            let is_free = |port: u16| (port % 2 == 1) == odd;
            let ports = choose(6, seed, &taken, is_free).unwrap();
            prop_assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 6);
            for port in ports {
                prop_assert!(RANGE.contains(&port) && is_free(port) && !taken.contains(&port));
            }
        }
    }

    #[test]
    fn when_all_are_taken_it_says_so() {
        let message = choose(2, 3, &BTreeSet::new(), |_| false).unwrap_err().to_string();
        assert_eq!(message, "no 2 free ports between 20000 and 32000");
    }

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}
