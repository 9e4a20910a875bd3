//! Genesis, headers, fork rules, chain files, the import pipeline and the workload generator.
