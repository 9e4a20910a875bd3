//! State engine for EVM blockchains: the facade library and the cambium program.
