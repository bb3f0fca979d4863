//! The installation of plugins from local folders and marketplaces.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: Done.}]}]";

pub(crate) fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(file, text).expect("a file");
}

/// Writes a plugin `p` with a skill.
pub(crate) fn write_plugin(folder: &Path, version: &str) {
    let manifest = json!({ "name": "p", "version": version }).to_string();
    write(folder, "plugin.json", &manifest);
    let skill = "---\nname: greet\ndescription: Greets.\n---\nHello.";
    write(folder, "skills/greet/SKILL.md", skill);
}

/// Writes a marketplace `m` with the plugin `p`, and returns its folder.
fn marketplace(server: &TestServer) -> PathBuf {
    let folder = server.folder().join("market");
    let catalog = json!({
        "name": "m",
        "plugins": [
            { "name": "p", "source": "./p", "description": "Greets." },
            { "name": "far", "source": { "source": "github", "repo": "a/b" } },
            { "name": "out", "source": "../p" },
            { "name": "other", "source": "./p" },
            { "name": "gone", "source": "./gone" },
        ],
    });
    write(&folder, "marketplace.json", &catalog.to_string());
    write_plugin(&folder.join("p"), "1.0.0");
    folder
}

pub(crate) async fn refusal(client: &mut TestClient, method: &str, params: Value) -> String {
    let answer = client.answer(method, &params).await;
    let message = answer["error"]["message"].as_str();
    let message = message.unwrap_or_else(|| panic!("{method} {params}: {answer}"));
    message.to_owned()
}

async fn installed(client: &mut TestClient) -> Value {
    let mut list = client.request("plugins.list", &json!({})).await;
    list["plugins"].take()
}

/// Folders of the copies.
fn copies(server: &TestServer) -> Vec<PathBuf> {
    let entries = fs::read_dir(server.folder().join("settings/plugins"));
    let entries = entries.into_iter().flatten();
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[tokio::test]
async fn plugin_of_a_marketplace_is_a_private_copy() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let market = marketplace(&server);
    let source = json!({ "source": market });
    let added = client.request("plugins.marketplaces.add", &source).await;
    assert_eq!(added, json!({ "name": "m" }));
    let spec = json!({ "source": "p@m" });
    let answer = client.request("plugins.install", &spec).await;
    let info = json!({ "name": "p", "marketplace": "m", "enabled": true, "version": "1.0.0" });
    assert_eq!(answer, json!({ "plugin": info, "skillsInstalled": 1 }));
    assert_eq!(installed(&mut client).await, json!([info]));
    let [copy] = &copies(&server)[..] else {
        panic!("one copy");
    };
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(copy), 0o700);
    assert_eq!(mode(&copy.join("skills/greet/SKILL.md")), 0o600);

    // The source changes the copy only by an update, which keeps the switch.
    let names = json!({ "names": ["p@m", "unknown"] });
    client.request("plugins.disable", &names).await;
    write_plugin(&market.join("p"), "2.0.0");
    assert_eq!(installed(&mut client).await[0]["version"], "1.0.0");
    let name = json!({ "name": "p@m" });
    let updated = client.request("plugins.update", &name).await;
    let versions =
        json!({ "previousVersion": "1.0.0", "newVersion": "2.0.0", "skillsInstalled": 1 });
    assert_eq!(updated, versions);
    let info = json!({ "name": "p", "marketplace": "m", "enabled": false, "version": "2.0.0" });
    assert_eq!(installed(&mut client).await, json!([info]));
    assert_eq!(copies(&server).len(), 1);

    client.request("plugins.uninstall", &name).await;
    assert_eq!(installed(&mut client).await, json!([]));
    assert_eq!(copies(&server), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn plugin_of_a_folder_is_deprecated_and_always_enabled() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    write_plugin(&server.folder().join("direct"), "1.0.0");
    // A relative path begins in the working directory of the request.
    let source = json!({ "source": "./direct", "workingDirectory": server.folder() });
    let answer = client.request("plugins.install", &source).await;
    assert_eq!(answer["plugin"]["marketplace"], "", "{answer}");
    let warning = answer["deprecationWarning"].as_str().unwrap_or_default();
    assert!(warning.contains("deprecated"), "{answer}");
    let refused = refusal(&mut client, "plugins.disable", json!({ "names": ["p"] })).await;
    assert!(refused.contains("uninstall it"), "{refused}");
    client
        .request("plugins.enable", &json!({ "names": ["p"] }))
        .await;
    let id = &answer["plugin"]["directSourceId"];
    let wrong = json!({ "name": "p", "directSourceId": "0" });
    refusal(&mut client, "plugins.uninstall", wrong).await;
    let params = json!({ "name": "p", "directSourceId": id });
    client.request("plugins.uninstall", &params).await;
    assert_eq!(installed(&mut client).await, json!([]));
}

/// A refused installation leaves no copy and no entry.
#[tokio::test]
async fn unusable_plugins_are_refused() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let market = marketplace(&server);
    client
        .request("plugins.marketplaces.add", &json!({ "source": market }))
        .await;
    let folder = |name: &str| server.folder().join(name);
    write(&folder("empty"), "README.md", "");
    write(&folder("broken"), "plugin.json", "{");
    write(&folder("named"), "plugin.json", r#"{"name": "../../x"}"#);
    let out = r#"{"name": "x", "skills": "../p"}"#;
    write(&folder("out"), "plugin.json", out);
    write(&folder("linked"), "plugin.json", r#"{"name": "x"}"#);
    symlink(folder("market"), folder("linked/skills")).expect("a link");
    write(&folder("secret"), "plugin.json", r#"{"name": "x"}"#);
    symlink("/etc/passwd", folder("secret/data")).expect("a link");
    for (source, reason) in [
        ("owner/repo", "only local folders"),
        ("https://example.com/a.git", "only local folders"),
        ("p@copilot-plugins", "only local folders"),
        ("far@m", "only local folders"),
        ("./missing", "cannot be read"),
        ("p@unknown", "plugins.marketplaces.add"),
        ("absent@m", "browse"),
        ("out@m", "leave out `..`"),
        ("other@m", "its manifest has the name"),
        ("gone@m", "cannot be read"),
        ("./empty", "no plugin.json"),
        ("./broken", "is invalid"),
        ("./named", "letters"),
        ("./out", "leave out `..`"),
        ("./linked", "skills"),
        ("./secret", "data"),
    ] {
        let params = json!({ "source": source, "workingDirectory": server.folder() });
        let refused = refusal(&mut client, "plugins.install", params).await;
        assert!(refused.contains(reason), "{source}: {refused}");
    }
    assert_eq!(installed(&mut client).await, json!([]));
    assert_eq!(copies(&server), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn names_do_not_clash() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let market = marketplace(&server);
    let add = "plugins.marketplaces.add";
    client.request(add, &json!({ "source": market })).await;
    client.request(add, &json!({ "source": market })).await;
    let other = server.folder().join("other");
    write(
        &other,
        "marketplace.json",
        r#"{"name": "m", "plugins": []}"#,
    );
    let refused = refusal(&mut client, add, json!({ "source": other })).await;
    assert!(refused.contains("remove it first"), "{refused}");

    for source in [json!("p@m"), json!(market.join("p"))] {
        let params = json!({ "source": source });
        client.request("plugins.install", &params).await;
        let refused = refusal(&mut client, "plugins.install", params).await;
        assert!(refused.contains("update it"), "{refused}");
    }
    let name = json!({ "name": "p" });
    for method in ["plugins.update", "plugins.uninstall"] {
        let refused = refusal(&mut client, method, name.clone()).await;
        assert!(refused.contains("PLUGIN@MARKETPLACE"), "{refused}");
    }
    client
        .request("plugins.uninstall", &json!({ "name": "p@m" }))
        .await;
    assert_eq!(installed(&mut client).await[0]["marketplace"], "");
    client.request("plugins.uninstall", &name).await;
}

#[tokio::test]
async fn marketplaces_are_listed_checked_and_removed() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let market = marketplace(&server);
    client
        .request("plugins.marketplaces.add", &json!({ "source": market }))
        .await;
    let list = client
        .request("plugins.marketplaces.list", &json!({}))
        .await;
    assert_eq!(list["marketplaces"][0]["isDefault"], true, "{list}");
    assert_eq!(list["marketplaces"][1]["name"], "m", "{list}");
    let name = json!({ "name": "m" });
    let browsed = client.request("plugins.marketplaces.browse", &name).await;
    let first = json!({ "name": "p", "description": "Greets." });
    assert_eq!(browsed["plugins"][0], first);
    for method in ["browse", "remove", "refresh"] {
        let method = format!("plugins.marketplaces.{method}");
        refusal(&mut client, &method, json!({ "name": "unknown" })).await;
        refusal(&mut client, &method, json!({ "name": "copilot-plugins" })).await;
    }

    client
        .request("plugins.install", &json!({ "source": "p@m" }))
        .await;
    let remove = "plugins.marketplaces.remove";
    let kept = client.request(remove, &name).await;
    assert_eq!(kept, json!({ "removed": false, "dependentPlugins": ["p"] }));
    fs::rename(&market, server.folder().join("moved")).expect("a folder");
    let refreshed = client
        .request("plugins.marketplaces.refresh", &json!({}))
        .await;
    assert_eq!(refreshed["results"][0]["success"], false, "{refreshed}");
    let updated = client.request("plugins.updateAll", &json!({})).await;
    assert_eq!(updated["results"][0]["success"], false, "{updated}");
    let force = json!({ "name": "m", "force": true });
    let removed = client.request(remove, &force).await;
    assert_eq!(removed, json!({ "removed": true }));
    assert_eq!(installed(&mut client).await, json!([]));
    assert_eq!(copies(&server), Vec::<PathBuf>::new());
}

/// A failed write leaves the old settings, and the next change removes the copy of an interrupted installation.
#[tokio::test]
async fn interrupted_installations_leave_no_plugin() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let plugin = server.folder().join("direct");
    write_plugin(&plugin, "1.0.0");
    let settings = server.folder().join("settings");
    write(
        &settings,
        "settings.json",
        r#"{"plugins": {"installed": [{"na"#,
    );
    for (method, params) in [
        ("plugins.list", json!({})),
        ("plugins.install", json!({ "source": plugin })),
        ("plugins.updateAll", json!({})),
        ("session.create", json!({ "sessionId": "s" })),
    ] {
        let refused = refusal(&mut client, method, params).await;
        assert!(refused.contains("settings.json"), "{method}: {refused}");
    }
    assert_eq!(copies(&server), Vec::<PathBuf>::new());

    fs::remove_file(settings.join("settings.json")).expect("a file");
    write_plugin(&settings.join("plugins/interrupted"), "1.0.0");
    assert_eq!(installed(&mut client).await, json!([]));
    client
        .request("plugins.install", &json!({ "source": plugin }))
        .await;
    client
        .request("plugins.uninstall", &json!({ "name": "p" }))
        .await;
    assert_eq!(copies(&server), Vec::<PathBuf>::new());
}
