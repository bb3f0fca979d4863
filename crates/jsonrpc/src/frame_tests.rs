use proptest::prelude::*;

use super::*;

const LIMITS: FrameLimits = FrameLimits {
    header_bytes_max: 64,
    body_bytes_max: 1000,
};

type Decoded = (Vec<Vec<u8>>, Option<FrameError>);

/// Returns all frames of a stream that arrives in these chunks, and the error that ends the stream.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = FrameDecoder::new(LIMITS);
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.unread().is_empty(), "all input is decoded");
    }
    (frames, None)
}

#[track_caller]
fn check(stream: &[u8], frames: &[&[u8]], error: Option<FrameError>) {
    let expected: Decoded = (frames.iter().map(|frame| frame.to_vec()).collect(), error);
    assert_eq!(decode([stream]), expected, "in one chunk");
    assert_eq!(decode(stream.chunks(1)), expected, "byte by byte");
}

#[test]
fn headers_are_read_as_lsp_defines_them() {
    for stream in [
        "Content-Length: 2\r\n\r\nab",
        "content-length:2\r\n\r\nab",
        "CONTENT-LENGTH \t:\t 2 \r\n\r\nab",
        "Content-Length: 2\n\nab",
        "Content-Length: 0002\r\n\nab",
        "Content-Type: text/plain; charset=x\r\nContent-Length: 2\r\n\r\nab",
        "Content-Length: 2\r\nX-Other:\r\n\r\nab",
        ":\r\nContent-Length: 2\r\n\r\nab",
    ] {
        check(stream.as_bytes(), &[b"ab"], None);
    }
    check(
        b"Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\n\n",
        &[b"", b"\n"],
        None,
    );
}

#[test]
fn malformed_headers_are_errors() {
    let invalid = |value: &str| FrameError::InvalidContentLength {
        value: value.to_owned(),
    };
    let too_long = |value: &str| FrameError::BodyTooLong {
        value: value.to_owned(),
        body_bytes_max: 1000,
    };
    let no_colon = |line: &str| FrameError::InvalidHeaderLine {
        line: line.to_owned(),
    };
    let digits = "9".repeat(40);
    let table = [
        ("\r\n", FrameError::MissingContentLength),
        ("\n", FrameError::MissingContentLength),
        ("Content-Type: x\r\n\r\n", FrameError::MissingContentLength),
        (
            "Content-Length-: 1\r\n\r\n",
            FrameError::MissingContentLength,
        ),
        (
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            FrameError::RepeatedContentLength,
        ),
        (
            "Content-Length: 1\r\ncontent-length: 1\r\n",
            FrameError::RepeatedContentLength,
        ),
        ("Content-Length:\r\n", invalid("")),
        ("Content-Length: -1\r\n", invalid("-1")),
        ("Content-Length: +5\r\n", invalid("+5")),
        ("Content-Length: 1.0\r\n", invalid("1.0")),
        ("Content-Length: 0x10\r\n", invalid("0x10")),
        ("Content-Length: 1 2\r\n", invalid("1 2")),
        ("Content-Length: ٣\r\n", invalid("٣")),
        ("Content-Length: 1001\r\n", too_long("1001")),
        ("Content-Length: 10000000000\r\n", too_long("10000000000")),
        (
            "Content-Length: 18446744073709551617\r\n",
            too_long("18446744073709551617"),
        ),
        (&format!("Content-Length: {digits}\r\n"), too_long(&digits)),
        ("{\"jsonrpc\"\n", no_colon("{\"jsonrpc\"")),
        (" \r\n", no_colon(" ")),
    ];
    for (header, error) in table {
        // The trailing bytes complete every header, so that no case waits for more input.
        let stream = format!("Content-Length: 3\r\n\r\nabc{header}\r\n");
        check(stream.as_bytes(), &[b"abc"], Some(error));
    }
}

#[test]
fn header_limit_counts_every_byte_of_the_header() {
    let too_long = FrameError::HeaderTooLong {
        header_bytes_max: 64,
    };
    let header = |len: usize| {
        let rest = "Content-Length: 1\r\n\r\n";
        format!("X:{}\r\n{rest}", "x".repeat(len - rest.len() - 4))
    };
    let largest = header(64) + "a";
    check(largest.repeat(3).as_bytes(), &[b"a".as_slice(); 3], None);
    check((header(65) + "a").as_bytes(), &[], Some(too_long.clone()));
    check(&[b'x'; 64], &[], None);
    check(&[b'x'; 65], &[], Some(too_long.clone()));
    check("X: y\r\n".repeat(11).as_bytes(), &[], Some(too_long));
}

#[test]
fn error_is_final_and_frees_the_memory() {
    let mut decoder = FrameDecoder::new(LIMITS);
    decoder.push(b"Content-Length: 1\r\n\r\naContent-Length: x\r\n");
    assert_eq!(decoder.next_frame(), Ok(Some(b"a".to_vec())));
    let error = decoder.next_frame().expect_err("an error");
    for _ in 0..3 {
        decoder.push(&encode_frame(b"b"));
        assert_eq!(decoder.next_frame(), Err(error.clone()));
    }
    assert_eq!(decoder.input.capacity(), 0);
    assert!(!decoder.is_at_boundary());
}

#[test]
fn boundary_is_where_no_frame_is_cut() {
    let frame = encode_frame(b"abc");
    let mut decoder = FrameDecoder::new(LIMITS);
    assert!(decoder.is_at_boundary());
    for _ in 0..2 {
        for (at, byte) in frame.iter().enumerate() {
            decoder.push(&[*byte]);
            assert!(!decoder.is_at_boundary(), "byte {at}");
            let whole = decoder.next_frame().expect("a valid frame").is_some();
            assert_eq!(whole, at + 1 == frame.len(), "byte {at}");
            assert_eq!(decoder.is_at_boundary(), whole, "byte {at}");
        }
    }
    decoder.push(b"Content-Length: 0\r\n\r\n");
    assert_eq!(decoder.next_frame(), Ok(Some(Vec::new())));
    assert!(decoder.is_at_boundary());
}

#[test]
fn announced_length_allocates_nothing() {
    let mut decoder = FrameDecoder::new(FrameLimits {
        header_bytes_max: 64,
        body_bytes_max: usize::MAX,
    });
    decoder.push(b"Content-Length: 10000000000\r\n\r\nabc");
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(decoder.body.capacity() < 100);
    for _ in 0..1000 {
        decoder.push(&[b'x'; 100]);
        assert_eq!(decoder.next_frame(), Ok(None));
    }
    assert!(decoder.body.capacity() < 2 * 100_003 + 100);
    assert!(decoder.input.capacity() < 1000);
}

#[test]
fn body_never_takes_more_than_its_length() {
    let mut decoder = FrameDecoder::new(LIMITS);
    decoder.push(b"Content-Length: 1000\r\n\r\n");
    for _ in 0..999 {
        decoder.push(b"x");
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.body.capacity() <= 1000);
    }
}

/// Takes minutes if the time of a push or of a frame is proportional to the number of buffered bytes.
#[test]
fn tiny_chunks_and_tiny_frames_are_linear() {
    let limits = FrameLimits {
        header_bytes_max: 1 << 20,
        body_bytes_max: 1 << 20,
    };
    let mut decoder = FrameDecoder::new(limits);
    let header = format!("X: {}\r\n", "x".repeat(900_000));
    let stream = header + "Content-Length: 1000000\r\n\r\n" + &"b".repeat(1_000_000);
    let mut frames = 0;
    for byte in stream.as_bytes() {
        decoder.push(&[*byte]);
        frames += usize::from(decoder.next_frame().expect("valid").is_some());
    }
    assert_eq!(frames, 1);

    // One chunk with many frames, then one chunk after each returned frame.
    decoder.push(&encode_frame(b"{}").repeat(200_000));
    for _ in 0..200_000 {
        assert!(decoder.next_frame().expect("valid").is_some());
        decoder.push(b"Content-Length: 1\r\n\r\n.");
    }
    assert!(decoder.input.len() < 3 * 200_000 * 23);
}

#[test]
fn encoded_frame_has_only_the_length() {
    assert_eq!(encode_frame(b""), b"Content-Length: 0\r\n\r\n");
    assert_eq!(
        encode_frame("ü".as_bytes()),
        "Content-Length: 2\r\n\r\nü".as_bytes()
    );
}

/// Splits the stream at these positions.
fn split<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn any_split_decodes_to_the_same_frames(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|body| encode_frame(body)).collect();
        prop_assert_eq!(decode(split(&stream, &cuts)), (bodies, None));
    }

    #[test]
    fn any_split_of_hostile_bytes_ends_the_same(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "Content-Length: 3\r\n", "content-length:1\n", "Content-Length: -1\r\n",
                "Content-Length: 1001\r\n", "X: y\r\n", "\r\n", "\n", "\r", "abc", ":", "1",
            ]),
            0..20,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream = pieces.concat();
        let stream = stream.as_bytes();
        prop_assert_eq!(decode(split(stream, &cuts)), decode([stream]));
    }
}
