//! Place of a command below the limit of commands.

use std::time::Duration;

use crate::launch_error::LaunchError;
#[cfg(target_os = "linux")]
use crate::platform::ReservedKeeper;
use crate::spec::ContainmentChoice;

impl ContainmentChoice {
    /// Waits until another command may start, and reserves its place. The returned value is for one command. Without a
    /// limit (see [`Keepers::limit_commands`](crate::Keepers::limit_commands)), resolves at once.
    ///
    /// # Errors
    /// If the limit is reached for all of this time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(
            clippy::unused_async,
            unused_variables,
            reason = "process groups have no limit"
        )
    )]
    pub async fn reserved(&self, wait_max: Duration) -> Result<Self, LaunchError> {
        #[cfg(target_os = "linux")]
        if let Self::Keeper(keepers) = self
            && let Some(reserved) = ReservedKeeper::take(keepers, wait_max).await?
        {
            return Ok(Self::Custom(std::sync::Arc::new(reserved)));
        }
        Ok(self.clone())
    }
}
