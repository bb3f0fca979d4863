//! MCP servers as shell scripts.

/// Returns a script of a server with these tools, a JSON array. The script runs `at_start` first. `on_call` handles a
/// call: it sets `result`, or continues with the next message. `cancelled` in the working folder shows that a call was
/// cancelled.
pub(crate) fn shell_server(at_start: &str, tools: &str, on_call: &str) -> String {
    format!(
        r#"{at_start}
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"server/discover"'*) result='{{}}' ;;
    *'"initialize"'*) result='{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}' ;;
    *'"tools/list"'*) result='{{"tools":{tools}}}' ;;
    *'"tools/call"'*) {on_call} ;;
    *'"notifications/cancelled"'*) echo cancelled >cancelled; continue ;;
    *) continue ;;
  esac
  printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$result"
done
"#
    )
}
