//! Loop devices and mounts, which are taken down again in every case.

use super::Image;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Runs a program of the system. Panics with its output if it fails.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, args: &[A]) -> String {
    try_run(program, args).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program of the system. An error is what it said.
fn try_run<A: AsRef<OsStr>>(program: &str, args: &[A]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    told(
        program,
        &output.map_err(|error| format!("{program}: {error}"))?,
    )
}

fn told(program: &str, output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program}: {}", text(&output.stderr))),
    }
}

/// Missing requirements for ext4 on a loop device.
pub(crate) fn missing_for_mounts() -> Vec<String> {
    let mut missing = Vec::new();
    if run("id", &["-u"]) != "0" {
        missing.push("root".to_owned());
    }
    for program in ["mkfs.ext4", "losetup", "mount", "umount", "unshare"] {
        if Command::new(program).arg("--version").output().is_err() {
            missing.push(program.to_owned());
        }
    }
    if !Path::new("/dev/loop-control").exists() {
        missing.push("loop devices (/dev/loop-control)".to_owned());
    }
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !systems.lines().any(|line| line.trim() == "ext4") {
        missing.push("ext4 in the kernel (/proc/filesystems)".to_owned());
    }
    if missing.is_empty()
        && let Err(why) = try_run("losetup", &["--find"])
    {
        missing.push(format!("a free loop device ({why})"));
    }
    missing
}

/// Mounts with a descriptor of the caller's, which is number 0 to the mount.
pub(crate) fn mount_with_stdin(stdin: File, kind: &str, options: &str, name: &str, at: &Path) {
    let mut command = Command::new("mount");
    command
        .args(["-i", "-t", kind, "-o", options, name])
        .arg(at);
    let output = command.stdin(Stdio::from(stdin)).output();
    told("mount", &output.expect("mount runs")).unwrap_or_else(|error| panic!("{error}"));
}

/// Unmounts what is there; at once if it is not in use, else as soon as it is not.
pub(crate) fn unmount(at: &Path) {
    for _ in 0..50 {
        if try_run("umount", &[at]).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = try_run("umount", &[OsStr::new("--lazy"), at.as_os_str()]);
}

/// A loop device on a file. Dropped while it is mounted, it goes with the mount.
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    pub(crate) fn on(file: &Path) -> Self {
        let args = [OsStr::new("--find"), OsStr::new("--show"), file.as_os_str()];
        Self(run("losetup", &args).into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = try_run("losetup", &[OsStr::new("--detach"), self.0.as_os_str()]);
    }
}

/// A mounted ext4.
pub(crate) struct Ext4 {
    at: PathBuf,
}

impl Ext4 {
    /// An image with an empty file system.
    pub(crate) fn make(bytes: u64, scratch: &Path) -> Image {
        let file = scratch.join("empty.img");
        File::create(&file)
            .and_then(|file| file.set_len(bytes))
            .expect("an empty file");
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let args = ["-q", "-F", "-b", "4096", "-J", "size=4", "-E", options];
        let args = args.iter().map(OsStr::new).chain([file.as_os_str()]);
        run("mkfs.ext4", &args.collect::<Vec<_>>());
        let bytes = fs::read(&file).expect("the file just made");
        fs::remove_file(&file).expect("the file just made");
        Image::of(&bytes)
    }

    /// Mounts the file system of a device. An error is what the kernel said.
    pub(crate) fn mount(device: &Path, options: &str, at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).expect("a mount point");
        let [t, kind, o] = ["-t", "ext4", "-o"].map(OsStr::new);
        let args = [
            t,
            kind,
            o,
            OsStr::new(options),
            device.as_os_str(),
            at.as_os_str(),
        ];
        try_run("mount", &args)?;
        Ok(Self { at: at.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

impl Image {
    /// Writes all of it to a new file.
    pub(crate) fn save(&self, file: &Path) {
        let mut file = File::create(file).expect("a file");
        file.set_len(self.len() as u64).expect("its length");
        for (offset, block) in self.written() {
            file.seek(SeekFrom::Start(offset as u64)).expect("a place");
            file.write_all(block).expect("a block");
        }
    }
}
