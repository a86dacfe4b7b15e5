//! Image archives made from files, without a container engine: one layer on an empty base, in the format that
//! `docker save` writes and containerd imports.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use ring::digest;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::modules::hex;

/// The same in every archive, so that the same files give the same image.
const CREATED: &str = "2026-01-01T00:00:00Z";
/// Where a container gets something mounted, whatever is in the image.
const MOUNT_POINTS: [&str; 5] = ["dev", "etc", "proc", "sys", "tmp"];
const PASSWD: &str = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n";

/// What goes into an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name with a tag.
    pub reference: String,
    /// The command that it runs.
    pub entrypoint: Vec<String>,
    /// Files: where in the image, and where here.
    pub files: Vec<(String, PathBuf)>,
}

impl Image {
    /// An image of one program and the shared libraries it needs, as the machine's loader finds them.
    ///
    /// # Errors
    /// When a library is missing.
    pub fn of_program(reference: &str, program: &Path) -> Result<Self> {
        let name = program
            .file_name()
            .and_then(|name| name.to_str())
            .context("a program has a name")?;
        let inside = format!("usr/local/bin/{name}");
        let mut files = vec![(inside.clone(), program.to_owned())];
        files.extend(
            libraries(program)?
                .into_iter()
                .map(|path| (path.display().to_string(), path)),
        );
        Ok(Self {
            reference: reference.to_owned(),
            entrypoint: vec![format!("/{inside}")],
            files,
        })
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When a file cannot be read or the archive cannot be written.
    pub fn write(&self, archive: impl Write) -> Result<()> {
        let files = self
            .files
            .iter()
            .map(|(inside, here)| {
                let content = std::fs::read(here).with_context(|| format!("reading {}", here.display()))?;
                Ok((inside.trim_start_matches('/').to_owned(), content))
            })
            .collect::<Result<Vec<_>>>()?;
        let layer = layer(&files)?;
        let layer_digest = sha256(&layer);
        let config = json!({
            "architecture": go_architecture(),
            "os": "linux",
            "created": CREATED,
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created": CREATED, "created_by": "outrigger"}],
        });
        let config = serde_json::to_vec(&config)?;
        let config_name = format!("{}.json", sha256(&config));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{"Config": config_name, "RepoTags": [self.reference], "Layers": [layer_name]}]);
        let mut archive = Builder::new(archive);
        append(&mut archive, &config_name, &config, 0o644)?;
        append(&mut archive, &layer_name, &layer, 0o644)?;
        append(
            &mut archive,
            "manifest.json",
            &serde_json::to_vec(&manifest)?,
            0o644,
        )?;
        archive.into_inner()?.flush()?;
        Ok(())
    }
}

fn layer(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    let mut folders: BTreeSet<String> = MOUNT_POINTS.map(str::to_owned).into();
    for (path, _) in files {
        folders.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
    }
    // Sorted, so a folder comes before what is in it.
    for folder in &folders {
        let mut header = header(0, if folder == "tmp" { 0o1777 } else { 0o755 });
        header.set_entry_type(EntryType::Directory);
        layer.append_data(&mut header, folder, std::io::empty())?;
    }
    append(&mut layer, "etc/passwd", PASSWD.as_bytes(), 0o644)?;
    for (path, content) in files {
        append(&mut layer, path, content, 0o755)?;
    }
    Ok(layer.into_inner()?)
}

fn append(archive: &mut Builder<impl Write>, path: &str, content: &[u8], mode: u32) -> Result<()> {
    let mut header = header(u64::try_from(content.len())?, mode);
    archive
        .append_data(&mut header, path, content)
        .with_context(|| format!("archiving {path}"))
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What `ldd` lists; nothing for a static program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("running ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!(
            "{} needs a library that is missing: {}",
            program.display(),
            line.trim()
        );
    }
    Ok(parse_ldd(&text))
}

fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
            path.split_once(" (")
                .map(|(path, _)| path)
                .filter(|path| path.starts_with('/'))
        })
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use super::*;

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        tar::Archive::new(archive)
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (path, content)
            })
            .collect()
    }

    fn archive(folder: &Path) -> Vec<u8> {
        let program = folder.join("program");
        std::fs::write(&program, "#!").unwrap();
        let image = Image {
            reference: "localhost/x:1".into(),
            entrypoint: vec!["/bin/x".into(), "run".into()],
            files: vec![("/bin/x".into(), program)],
        };
        let mut archive = Vec::new();
        image.write(&mut archive).unwrap();
        archive
    }

    #[test]
    fn an_archive_leads_from_manifest_to_config_to_layer() {
        let folder = tempfile::tempdir().unwrap();
        let files = unpack(&archive(folder.path()));
        let manifest: serde_json::Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["localhost/x:1"]));
        let config = &files[manifest[0]["Config"].as_str().unwrap()];
        assert_eq!(manifest[0]["Config"], format!("{}.json", sha256(config)));
        let config: serde_json::Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/x", "run"]));
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{}", sha256(layer))])
        );
        let inside = unpack(layer);
        let paths: Vec<_> = inside.keys().map(|path| path.trim_end_matches('/')).collect();
        assert_eq!(
            paths,
            ["bin", "bin/x", "dev", "etc", "etc/passwd", "proc", "sys", "tmp"]
        );
        assert_eq!(inside["bin/x"], b"#!");
    }

    #[test]
    fn the_same_files_give_the_same_archive() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(archive(folder.path()), archive(folder.path()));
    }

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5e)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f5f)
";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_ldd(text), expected);
        assert!(parse_ldd("\tnot a dynamic executable\n").is_empty());
    }
}
