//! Reference models, public fixtures and crash drivers, for Cambium's own tests.
