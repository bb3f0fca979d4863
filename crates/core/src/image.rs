//! Images in messages: PNG, JPEG, GIF and WebP, the formats that most providers accept.
//!
//! An [`Image`] always has a supported format and at most [`IMAGE_BYTES_MAX`] bytes, and [`Images`] has at most
//! [`IMAGES_MAX`] of them. The format comes from the signature at the start of the bytes, never from a file name, because
//! a provider refuses the whole request if the declared format is wrong.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum bytes of one image. The Anthropic API accepts images of at most 5 MiB, counted after the encoding as base64,
/// which is a third longer than the bytes.
pub const IMAGE_BYTES_MAX: usize = 5 * 1024 * 1024 / 4 * 3;

/// Maximum number of images in a message. With more images in a request, the Anthropic API accepts only small images.
pub const IMAGES_MAX: usize = 20;

/// Maximum bytes of all images in a message. The Gemini API accepts requests of at most 20 MB, and base64 is a third
/// longer than the bytes.
pub const IMAGES_BYTES_MAX: usize = 14_000_000;

/// Estimated tokens of an image in a request. The Anthropic API scales larger images down to about this number.
pub const IMAGE_TOKENS_ESTIMATED: u64 = 1_600;

/// Text in the place of an image that a request leaves out.
pub const IMAGE_LEFT_OUT: &str = "[image left out]";

/// Format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ImageType {
    /// PNG.
    #[serde(rename = "image/png")]
    Png,
    /// JPEG.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// GIF.
    #[serde(rename = "image/gif")]
    Gif,
    /// WebP.
    #[serde(rename = "image/webp")]
    Webp,
}

impl ImageType {
    /// The format that the signature at the start of these bytes names.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let starts = |signature: &[u8]| bytes.starts_with(signature);
        if starts(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if starts(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if starts(b"GIF87a") || starts(b"GIF89a") {
            Some(Self::Gif)
        } else if starts(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Self::Webp)
        } else {
            None
        }
    }

    /// The media type, such as `image/png`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }
}

/// Reason why bytes are no image of a message, or images are too many for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The bytes have no known signature.
    #[error("not an image: the content is neither PNG, JPEG, GIF nor WebP")]
    UnknownFormat,
    /// The image is too large.
    #[error(
        "the image is too large ({}, at most {}); make it smaller",
        Size(*.bytes), SizeLimit(IMAGE_BYTES_MAX as u64)
    )]
    TooLarge {
        /// Size of the image.
        bytes: u64,
    },
    /// The message has too many images.
    #[error("{count} images in one message; at most {IMAGES_MAX} are possible")]
    TooMany {
        /// Number of the images.
        count: usize,
    },
    /// The images of the message are together too large.
    #[error(
        "the images of the message are together too large ({}, at most {}); send fewer or smaller images",
        Size(*.bytes), SizeLimit(IMAGES_BYTES_MAX as u64)
    )]
    TooLargeTogether {
        /// Size of all images.
        bytes: u64,
    },
}

/// An image of a message. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Hash, JsonSchema)]
pub struct Image {
    media_type: ImageType,
    /// The bytes as base64.
    #[schemars(with = "String")]
    data: Arc<[u8]>,
}

impl Image {
    /// An image of these bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes have no signature of a supported format, or are more than [`IMAGE_BYTES_MAX`].
    pub fn new(data: impl Into<Arc<[u8]>>) -> Result<Self, ImageError> {
        let data = data.into();
        let media_type = ImageType::detect(&data).ok_or(ImageError::UnknownFormat)?;
        if data.len() > IMAGE_BYTES_MAX {
            let bytes = data.len() as u64;
            return Err(ImageError::TooLarge { bytes });
        }
        Ok(Self { media_type, data })
    }

    /// An image of bytes that are encoded as base64.
    ///
    /// # Errors
    /// Like [`new`](Self::new). Text that is no base64 has an unknown format.
    pub fn from_base64(text: &str) -> Result<Self, ImageError> {
        // A longer text is not decoded: its length is known.
        let bytes = text.len() / 4 * 3;
        if bytes > IMAGE_BYTES_MAX + 3 {
            let bytes = bytes as u64;
            return Err(ImageError::TooLarge { bytes });
        }
        let data = STANDARD.decode(text.trim());
        Self::new(data.map_err(|_| ImageError::UnknownFormat)?)
    }

    /// The format.
    pub fn media_type(&self) -> ImageType {
        self.media_type
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The bytes as base64.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.data)
    }

    /// Format and size of the image.
    pub fn info(&self) -> ImageInfo {
        ImageInfo {
            media_type: self.media_type,
            bytes: self.data.len() as u64,
        }
    }
}

/// Prints the format and the size instead of the bytes.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({})", self.info())
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct EncodedImage {
            media_type: ImageType,
            data: String,
        }
        let fields = EncodedImage {
            media_type: self.media_type,
            data: self.to_base64(),
        };
        fields.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Image {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct StoredImage {
            // The bytes determine the media type.
            data: String,
        }
        let fields = StoredImage::deserialize(d)?;
        Self::from_base64(&fields.data).map_err(D::Error::custom)
    }
}

/// Format and size of an image, for people and for records of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageInfo {
    /// The format.
    pub media_type: ImageType,
    /// Size in bytes.
    pub bytes: u64,
}

impl ImageInfo {
    /// The size for people, such as `12 kB`.
    pub fn size(&self) -> String {
        Size(self.bytes).to_string()
    }
}

/// `image/png, 12 kB`.
impl fmt::Display for ImageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.media_type.as_str(), Size(self.bytes))
    }
}

/// A size in kilobytes or megabytes, rounded up.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = self.0.div_ceil(1_000);
        if kilobytes < 1_000 {
            return write!(f, "{kilobytes} kB");
        }
        let tenths = self.0.div_ceil(100_000);
        write!(f, "{}.{} MB", tenths / 10, tenths % 10)
    }
}

/// A limit in megabytes, rounded down, so that it differs from a larger [`Size`].
struct SizeLimit(u64);

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0 / 100_000;
        write!(f, "{}.{} MB", tenths / 10, tenths % 10)
    }
}

/// The images of one message. Clones share the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Images(Arc<[Image]>);

impl Images {
    /// A list of these images.
    ///
    /// # Errors
    /// Returns an error if the images are more than [`IMAGES_MAX`], or together more than [`IMAGES_BYTES_MAX`] bytes.
    pub fn new(images: Vec<Image>) -> Result<Self, ImageError> {
        let count = images.len();
        if count > IMAGES_MAX {
            return Err(ImageError::TooMany { count });
        }
        let bytes: usize = images.iter().map(|image| image.data.len()).sum();
        if bytes > IMAGES_BYTES_MAX {
            let bytes = bytes as u64;
            return Err(ImageError::TooLargeTogether { bytes });
        }
        Ok(Self(images.into()))
    }

    /// The first images that fit into one message, and the number of the other images.
    pub fn first_within_limits(mut images: Vec<Image>) -> (Self, usize) {
        let count = images.len();
        let mut bytes = 0;
        let fits = |image: &&Image| {
            bytes += image.data.len();
            bytes <= IMAGES_BYTES_MAX
        };
        let first = images.iter().take(IMAGES_MAX).take_while(fits).count();
        images.truncate(first);
        (Self(images.into()), count - first)
    }

    /// True if there are no images. The log omits the field of an empty list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Format and size of each image.
    pub fn infos(&self) -> Vec<ImageInfo> {
        self.iter().map(Image::info).collect()
    }
}

impl Deref for Images {
    type Target = [Image];

    fn deref(&self) -> &[Image] {
        &self.0
    }
}

impl From<Image> for Images {
    fn from(image: Image) -> Self {
        Self(Arc::new([image]))
    }
}

impl<'de> Deserialize<'de> for Images {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(Vec::deserialize(d)?).map_err(D::Error::custom)
    }
}

/// The text with a row for each image, such as `[image, image/png, 12 kB]`: for transcripts.
pub fn text_with_images(text: &str, images: impl IntoIterator<Item = ImageInfo>) -> String {
    let rows = images.into_iter().map(|image| format!("[image, {image}]"));
    let text = (!text.is_empty()).then(|| text.to_owned());
    text.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\npng";

    #[test]
    fn signature_decides_the_format() {
        for (bytes, expected) in [
            (PNG, Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\x10\0\0\0WAVE", None),
            (b"<svg/>", None),
            (b"", None),
        ] {
            let found = ImageType::detect(bytes).map(ImageType::as_str);
            assert_eq!(found, expected, "{bytes:?}");
            assert_eq!(Image::new(bytes).is_ok(), expected.is_some());
        }
    }

    #[test]
    fn images_are_base64_in_json_and_come_back() {
        let images = Images::from(Image::new(PNG).unwrap());
        let json = serde_json::to_string(&images).unwrap();
        assert_eq!(
            json,
            r#"[{"media_type":"image/png","data":"iVBORw0KGgpwbmc="}]"#
        );
        assert_eq!(serde_json::from_str::<Images>(&json).unwrap(), images);
        let text = r#"[{"media_type":"image/png","data":"aGVsbG8="}]"#;
        assert!(serde_json::from_str::<Images>(text).is_err());
    }

    #[test]
    fn limits_hold_for_one_image_and_for_all() {
        let of_size = |bytes: usize| {
            let mut data = PNG.to_vec();
            data.resize(bytes, 0);
            Image::new(data)
        };
        let largest = of_size(IMAGE_BYTES_MAX).unwrap();
        assert_eq!(largest.to_base64().len(), 5 * 1024 * 1024);
        assert_eq!(
            Image::from_base64(&largest.to_base64()),
            Ok(largest.clone())
        );
        assert_eq!(
            of_size(IMAGE_BYTES_MAX + 1).unwrap_err().to_string(),
            "the image is too large (4.0 MB, at most 3.9 MB); make it smaller"
        );
        assert!(Image::from_base64(&"A".repeat(6 << 20)).is_err());
        let small = Image::new(PNG).unwrap();
        assert!(Images::new(vec![small.clone(); IMAGES_MAX]).is_ok());
        let count = IMAGES_MAX + 1;
        let many = vec![small; count];
        assert_eq!(
            Images::new(many.clone()),
            Err(ImageError::TooMany { count })
        );
        assert_eq!(Images::first_within_limits(many).1, 1);
        let large = vec![largest; 4];
        let error = Images::new(large.clone()).unwrap_err();
        assert!(matches!(error, ImageError::TooLargeTogether { .. }));
        let said = error.to_string();
        assert!(said.contains("(15.8 MB, at most 14.0 MB)"), "{said}");
        assert_eq!(Images::first_within_limits(large).1, 1);
    }

    #[test]
    fn size_is_short_and_never_zero() {
        let info = |bytes| ImageInfo {
            media_type: ImageType::Png,
            bytes,
        };
        assert_eq!(info(1).to_string(), "image/png, 1 kB");
        assert_eq!(info(11_500).to_string(), "image/png, 12 kB");
        assert_eq!(info(1_000_001).to_string(), "image/png, 1.1 MB");
        assert_eq!(
            text_with_images("Look:", [info(1)]),
            "Look:\n[image, image/png, 1 kB]"
        );
        assert_eq!(text_with_images("", [info(1)]), "[image, image/png, 1 kB]");
    }
}
