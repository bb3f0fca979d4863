//! Tables of addresses and URLs for the guard.

use super::guard::{AddressGuard, WebhookUrlError};

fn guard(allowed: &[&str]) -> AddressGuard {
    let networks = allowed.iter().map(|text| text.parse().unwrap());
    AddressGuard::new(networks.collect())
}

#[test]
fn addresses_that_are_not_public_are_refused() {
    let refused = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::7f00:1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];
    let guard = guard(&[]);
    for address in refused {
        assert!(
            guard.check_address(address.parse().unwrap()).is_err(),
            "{address}"
        );
    }
}

#[test]
fn public_addresses_pass() {
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.17",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700::1",
        "2a00::1",
    ];
    let guard = guard(&[]);
    for address in public {
        assert_eq!(guard.check_address(address.parse().unwrap()), Ok(()));
    }
}

#[test]
fn every_notation_of_a_private_address_is_refused() {
    let refused = [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7F.0x0.0x0.0x1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://0/",
        "http://%31%32%37.0.0.1/",
        "http://127%2E0.0.1/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http:127.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::FFFF:7F00:1]/",
        "http://[::ffff:7f00:1]:8080/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://localhost/",
        "http://localhost./",
        "HTTP://LOCALHOST:80/",
        "https://LocalHost/x",
        "https://a.localhost/",
        "https://a.LOCALHOST./",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/latest/meta-data/",
    ];
    let guard = guard(&[]);
    for url in refused {
        let checked = guard.check_url(url);
        assert!(
            matches!(checked, Err(WebhookUrlError::Address(_))),
            "{url}: {checked:?}"
        );
    }
}

#[test]
fn only_plain_http_urls_pass() {
    let guard = guard(&[]);
    for (url, expected) in [
        ("ftp://example.com/", WebhookUrlError::Scheme),
        ("file:///etc/passwd", WebhookUrlError::Scheme),
        ("gopher://example.com/", WebhookUrlError::Scheme),
        ("data:text/plain,x", WebhookUrlError::Scheme),
        ("http://user@example.com/", WebhookUrlError::UserInfo),
        ("http://user:secret@example.com/", WebhookUrlError::UserInfo),
        ("https://:secret@example.com/", WebhookUrlError::UserInfo),
    ] {
        assert_eq!(guard.check_url(url), Err(expected), "{url}");
    }
    for url in [
        "",
        "example.com",
        "/hook",
        "http://",
        "http://1.2.3.4.5/",
        "http://[::1/",
    ] {
        assert!(
            matches!(guard.check_url(url), Err(WebhookUrlError::Invalid(_))),
            "{url}"
        );
    }
    let of_length = |bytes: usize| format!("https://example.com/{}", "x".repeat(bytes - 20));
    assert!(guard.check_url(&of_length(2_048)).is_ok());
    assert_eq!(
        guard.check_url(&of_length(2_049)),
        Err(WebhookUrlError::TooLong)
    );
    for url in [
        "https://example.com/hook?a=b",
        "http://example.com:8080/",
        "HTTPS://EXAMPLE.COM",
        "http://8.8.8.8/",
        "http://[2606:4700::1]/",
    ] {
        assert!(guard.check_url(url).is_ok(), "{url}");
    }
}

#[test]
fn allowed_network_passes_and_its_neighbours_do_not() {
    let guard = guard(&["127.0.0.0/8", "fd00::/16", "10.1.2.3/32"]);
    for url in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://[fd00::1]/",
        "http://10.1.2.3/",
    ] {
        assert!(guard.check_url(url).is_ok(), "{url}");
    }
    for url in [
        "http://10.1.2.4/",
        "http://[::1]/",
        "http://[fd01::1]/",
        "http://0.0.0.0/",
    ] {
        assert!(guard.check_url(url).is_err(), "{url}");
    }
}
