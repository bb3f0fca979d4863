//! Scenarios of the conformance suite that fail, each with the reason.

/// A set of scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// All scenarios of a revision of the protocol.
    Revision(&'static str),
    /// The scenarios of extensions.
    Extensions,
}

/// A scenario that fails.
pub(super) struct ExpectedFailure {
    pub(super) scenario: &'static str,
    pub(super) suites: &'static [Suite],
    #[expect(dead_code, reason = "people read it")]
    pub(super) reason: &'static str,
}

const R_2025_03: Suite = Suite::Revision("2025-03-26");
const R_2025_06: Suite = Suite::Revision("2025-06-18");
const R_2025_11: Suite = Suite::Revision("2025-11-25");
const R_2026_07: Suite = Suite::Revision("2026-07-28");

const LOGIN: &str = "the client has no OAuth login";

pub(super) const EXPECTED_FAILURES: &[ExpectedFailure] = &[
    ExpectedFailure {
        scenario: "auth/2025-03-26-oauth-metadata-backcompat",
        suites: &[R_2025_03],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/2025-03-26-oauth-endpoint-fallback",
        suites: &[R_2025_03],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/token-endpoint-auth-basic",
        suites: &[R_2025_06, R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/token-endpoint-auth-post",
        suites: &[R_2025_06, R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/token-endpoint-auth-none",
        suites: &[R_2025_06, R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/metadata-default",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/metadata-var1",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/metadata-var2",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/metadata-var3",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/basic-cimd",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/scope-from-www-authenticate",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/scope-from-scopes-supported",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/scope-omitted-when-undefined",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/scope-step-up",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/scope-retry-limit",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/pre-registration",
        suites: &[R_2025_11, R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/resource-mismatch",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/offline-access-scope",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/offline-access-not-supported",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/authorization-server-migration",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-supported",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-not-advertised",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-supported-missing",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-wrong-issuer",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-unexpected",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/iss-normalized",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/metadata-issuer-mismatch",
        suites: &[R_2026_07],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/client-credentials-jwt",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/client-credentials-basic",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/enterprise-managed-authorization",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/dpop",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/dpop-nonce",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
    ExpectedFailure {
        scenario: "auth/wif-jwt-bearer",
        suites: &[Suite::Extensions],
        reason: LOGIN,
    },
];
