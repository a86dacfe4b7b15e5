//! Gives new pods the resources they should have, and validates the objects that say so.
