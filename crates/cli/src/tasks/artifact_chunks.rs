//! Artifacts that arrive in chunks.

use super::wire::ServerArtifact;

/// Maximum bytes of all incomplete artifacts of a task. The server may be untrusted, so its data is bounded.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Incomplete artifacts of a task, in the order of their first chunks.
#[derive(Debug, Default)]
pub(super) struct ArtifactChunks(Vec<ServerArtifact>);

impl ArtifactChunks {
    /// Adds a chunk. Returns the artifact if the chunk is the last one.
    pub(super) fn take(
        &mut self,
        chunk: ServerArtifact,
        append: bool,
        is_last: bool,
    ) -> Option<ServerArtifact> {
        let known = self.0.iter().position(|known| known.has_id_of(&chunk));
        let artifact = match known.map(|at| self.0.remove(at)) {
            Some(mut known) if append => {
                known.append(chunk);
                known
            }
            _ => chunk,
        };
        let bytes = self.0.iter().map(ServerArtifact::bytes).sum::<usize>();
        if is_last || bytes + artifact.bytes() > BYTES_MAX {
            return Some(artifact);
        }
        self.0.insert(known.unwrap_or(self.0.len()), artifact);
        None
    }

    /// Removes the artifacts whose last chunk did not arrive. Some servers mark no chunk as the last one.
    pub(super) fn take_rest(&mut self) -> impl Iterator<Item = ServerArtifact> {
        // An artifact without text was withdrawn.
        let rest = std::mem::take(&mut self.0).into_iter();
        rest.filter(|artifact| artifact.bytes() > 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chunk(id: &str, text: &str) -> ServerArtifact {
        let artifact = json!({"artifactId": id, "parts": [{"text": text}]});
        serde_json::from_value(artifact).unwrap()
    }

    fn texts(artifacts: impl IntoIterator<Item = ServerArtifact>) -> Vec<String> {
        artifacts.into_iter().map(|one| one.text()).collect()
    }

    #[test]
    fn artifact_is_complete_with_its_last_chunk() {
        let mut chunks = ArtifactChunks::default();
        assert!(chunks.take(chunk("a", "x"), false, false).is_none());
        assert!(chunks.take(chunk("b", "other"), false, false).is_none());
        assert!(chunks.take(chunk("a", "one"), false, false).is_none());
        assert!(chunks.take(chunk("a", " two"), true, false).is_none());
        let complete = chunks.take(chunk("a", " three"), true, true);
        assert_eq!(texts(complete), ["one two three"]);
        let replaced = chunks.take(chunk("b", "final"), false, true);
        assert_eq!(texts(replaced), ["final"]);
        assert_eq!(texts(chunks.take_rest()), [""; 0]);
    }

    #[test]
    fn incomplete_artifact_is_kept_and_a_withdrawn_one_is_not() {
        let mut chunks = ArtifactChunks::default();
        chunks.take(chunk("a", "half"), false, false);
        chunks.take(chunk("b", "half"), false, false);
        chunks.take(chunk("b", ""), false, false);
        assert_eq!(texts(chunks.take_rest()), ["half"]);
        assert_eq!(texts(chunks.take_rest()), [""; 0]);
    }

    #[test]
    fn incomplete_artifacts_are_bounded() {
        let mut chunks = ArtifactChunks::default();
        let half = "x".repeat(BYTES_MAX / 2);
        assert!(chunks.take(chunk("a", &half), false, false).is_none());
        let too_long = chunks.take(chunk("a", &format!("{half}y")), true, false);
        assert_eq!(too_long.map(|one| one.bytes()), Some(BYTES_MAX + 1));
        assert_eq!(texts(chunks.take_rest()), [""; 0]);
    }
}
