//! Reads the usage of containers and native sidecars and writes VPA recommendations.
