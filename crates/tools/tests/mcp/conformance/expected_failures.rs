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

const WITHOUT_PERSON: &str =
    "the client offers only the login of a person, not one with the identity of a program";
const DPOP: &str = "the protocol library does not bind tokens to a key";

pub(super) const EXPECTED_FAILURES: &[ExpectedFailure] = &[
    of_extension("auth/client-credentials-jwt", WITHOUT_PERSON),
    of_extension("auth/client-credentials-basic", WITHOUT_PERSON),
    of_extension("auth/enterprise-managed-authorization", WITHOUT_PERSON),
    of_extension("auth/wif-jwt-bearer", WITHOUT_PERSON),
    of_extension("auth/dpop", DPOP),
    of_extension("auth/dpop-nonce", DPOP),
];

const fn of_extension(scenario: &'static str, reason: &'static str) -> ExpectedFailure {
    ExpectedFailure {
        scenario,
        suites: &[Suite::Extensions],
        reason,
    }
}
