//! Ids of sessions, which clients choose.

use allstop_core::SessionId;
use allstop_jsonrpc::RpcError;

/// Maximum size of a session's id in bytes. The id is the name of a folder.
const ID_BYTES_MAX: usize = 128;

/// Returns the id if it neither leads out of its parent folder nor names a sub-agent's session.
pub(super) fn usable_id(id: String) -> Result<SessionId, RpcError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let is_name = id.bytes().all(is_allowed) && !id.starts_with('.');
    if id.is_empty() || id.len() > ID_BYTES_MAX || !is_name {
        return Err(RpcError::invalid_params(format!(
            "the session id {id:?} is not usable: use 1 to {ID_BYTES_MAX} letters, digits, `-`, `_`, `.` and `:`, without \
             a `.` at the start"
        )));
    }
    Ok(SessionId::new(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_cannot_leave_its_folder() {
        for id in ["", ".", "..", "../x", "a/b", "a\0b", &"x".repeat(129)] {
            assert!(usable_id(id.to_owned()).is_err(), "{id:?}");
        }
        for id in ["0b8a2f6e-8f4e-4f4e-9a52-6d6f6f6f6f6f", "my.session_1:a"] {
            assert_eq!(usable_id(id.to_owned()), Ok(SessionId::new(id)));
        }
    }
}
