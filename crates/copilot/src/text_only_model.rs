//! A model that gets no images, because the client of the session has switched off the vision of its model.

use std::sync::Arc;

use allstop_core::{Images, Message, ToolResult};
use allstop_model::{Model, ModelError, ModelRequest, ModelStream};
use futures::future::BoxFuture;

/// A model whose requests contain a note instead of each message's images. The conversation keeps the images.
#[derive(Debug)]
pub(crate) struct TextOnlyModel(Arc<dyn Model>);

impl TextOnlyModel {
    pub(crate) fn new(model: Arc<dyn Model>) -> Self {
        Self(model)
    }
}

/// Returns the message without images. Shares a message that has no images.
fn without_images(message: Arc<Message>) -> Arc<Message> {
    let noted = |text: &str, images: &Images| {
        let count = images.infos().len();
        let images = if count == 1 { "image" } else { "images" };
        Arc::from(format!(
            "{text}\n[{count} {images} left out: the model gets only text]"
        ))
    };
    match &*message {
        Message::User { text, images } if !images.is_empty() => Arc::new(Message::User {
            text: noted(text, images),
            images: Images::default(),
        }),
        Message::Tool(result) if !result.images.is_empty() => Arc::new(Message::Tool(ToolResult {
            content: noted(&result.content, &result.images),
            images: Images::default(),
            ..result.clone()
        })),
        _ => message,
    }
}

fn without_all_images(mut request: ModelRequest) -> ModelRequest {
    let messages = std::mem::take(&mut request.messages);
    request.messages = messages.into_iter().map(without_images).collect();
    request
}

impl Model for TextOnlyModel {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn check(&self, request: &ModelRequest) -> Result<(), ModelError> {
        self.0.check(request)
    }

    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        self.0.stream(without_all_images(request))
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::Image;

    use super::*;

    #[test]
    fn images_become_a_note() {
        let png = Image::new(*b"\x89PNG\r\n\x1a\n").expect("a signature");
        let shown = Message::User {
            text: "see".into(),
            images: png.into(),
        };
        let plain = without_images(Arc::new(shown));
        let Message::User { text, images } = &*plain else {
            panic!("{plain:?}");
        };
        assert!(images.is_empty());
        assert_eq!(&**text, "see\n[1 image left out: the model gets only text]");
    }
}
