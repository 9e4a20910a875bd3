//! Malformed files, where no test counts the process's memory.

mod hostile_directories;
