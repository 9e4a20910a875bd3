//! Batched Keccak-256 of inputs of any length, in as many lanes as the processor has.
