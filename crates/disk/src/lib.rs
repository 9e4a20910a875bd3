//! The disk as Cambium sees it: a portable implementation, and a seeded faulty one for tests.
