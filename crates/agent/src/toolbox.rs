//! Tools of an agent: a fixed set, and the tools of a source that may change.

use std::fmt;
use std::sync::Arc;

use allstop_model::ToolDeclaration;
use allstop_tools::{RegistryError, Tool, ToolRegistry, ToolSource, ToolSpec};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct Toolbox {
    own: ToolRegistry,
    source: Option<Arc<dyn ToolSource>>,
    /// Tools at the last seen version of the source.
    last: Mutex<Option<(u64, Arc<Tools>)>>,
}

/// Snapshot of the tools.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) registry: ToolRegistry,
    pub(crate) declarations: Arc<[ToolDeclaration]>,
}

impl Toolbox {
    pub(crate) fn new(own: ToolRegistry, source: Option<Arc<dyn ToolSource>>) -> Self {
        Self {
            own,
            source,
            last: Mutex::default(),
        }
    }

    pub(crate) fn set_own(&mut self, own: ToolRegistry) {
        *self = Self::new(own, self.source.take());
    }

    pub(crate) fn set_source(&mut self, source: Arc<dyn ToolSource>) {
        *self = Self::new(std::mem::take(&mut self.own), Some(source));
    }

    /// Adds a tool, and compiles its schema.
    pub(crate) fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.own.register(tool)?;
        *self.last.get_mut() = None;
        Ok(())
    }

    /// Adds a tool whose schema is known to be valid.
    pub(crate) fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.own.register_known(tool)?;
        *self.last.get_mut() = None;
        Ok(())
    }

    pub(crate) fn now(&self) -> Arc<Tools> {
        let version = self.source.as_ref().map_or(0, |source| source.version());
        let mut last = self.last.lock();
        match &*last {
            Some((of, tools)) if *of == version => Arc::clone(tools),
            _ => {
                let tools = Arc::new(self.collect());
                *last = Some((version, Arc::clone(&tools)));
                tools
            }
        }
    }

    fn collect(&self) -> Tools {
        let mut registry = self.own.clone();
        for tool in self.source.iter().flat_map(|source| source.tools()) {
            if let Err(error) = registry.register(tool) {
                tracing::warn!(%error, "a tool is skipped");
            }
        }
        let declaration = |spec: &ToolSpec| ToolDeclaration {
            name: Arc::clone(&spec.name),
            description: Arc::clone(&spec.description),
            input_schema: Arc::clone(&spec.input_schema),
        };
        Tools {
            declarations: registry.specs().map(declaration).collect(),
            registry,
        }
    }

    /// Returns the tools that satisfy `wanted`. The same filter applies to later versions of the source.
    pub(crate) fn filtered(&self, wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let own = self.own.chosen(&wanted);
        let source = self.source.as_ref().map(|of| {
            let of = Arc::clone(of);
            Arc::new(FilteredSource { of, wanted }) as _
        });
        Self::new(own, source)
    }
}

/// A source of tools with a filter.
struct FilteredSource<F> {
    of: Arc<dyn ToolSource>,
    wanted: F,
}

impl<F> fmt::Debug for FilteredSource<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilteredSource").field(&self.of).finish()
    }
}

impl<F: Fn(&str) -> bool + Send + Sync> ToolSource for FilteredSource<F> {
    fn version(&self) -> u64 {
        self.of.version()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.of.tools();
        tools.retain(|tool| (self.wanted)(&tool.spec().name));
        tools
    }
}
