//! Promise (Commands in tasks): A client that grants no credit stops the output at 64 KiB; one that breaks the protocol
//! ends its session

use tokio::io::{DuplexStream, duplex};
use tokio::sync::oneshot;

use super::*;
use crate::host::pty::WindowSize;

/// A client, and what the driver has of a session.
struct SessionRig {
    client: FrameStream<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    stdin: DuplexStream,
    stdout: DuplexStream,
    exit: oneshot::Sender<Result<u8, crate::runner::drivers::DriverError>>,
    sizes: watch::Receiver<WindowSize>,
    held: oneshot::Receiver<()>,
    stop: watch::Sender<bool>,
    ended: JoinHandle<SessionEnd>,
}

fn rig() -> SessionRig {
    let (client, server) = duplex(1 << 20);
    let (input, stdin) = duplex(4096);
    let (stdout, output) = duplex(4096);
    let (exit, end) = oneshot::channel();
    let (size, sizes) = watch::channel(WindowSize { columns: 80, rows: 24 });
    let (hold, held) = oneshot::channel::<()>();
    let (stop, stops) = watch::channel(false);
    let session = ExecSession {
        input: Some(Box::new(input)),
        output: Box::new(output),
        errors: Some(Box::new(tokio::io::empty())),
        size,
        end: Box::pin(async move { end.await.unwrap() }),
        hold: Box::new(hold),
    };
    let ended = tokio::spawn(run(server, session, stops));
    let (reader, writer) = split(client);
    let client = FrameStream { reader, decoder: FrameDecoder::default() };
    SessionRig { client, writer, stdin, stdout, exit, sizes, held, stop, ended }
}

impl SessionRig {
    async fn send(&mut self, frame: ExecFrame) {
        self.writer.write_all(&frame.encode()).await.unwrap();
    }
    async fn next(&mut self) -> Option<ExecFrame> {
        self.client.next().await.unwrap()
    }
}

#[tokio::test]
async fn last_output_comes_before_the_exit_code() {
    let mut rig = rig();
    rig.stdout.write_all(b"bye").await.unwrap();
    rig.exit.send(Ok(7)).unwrap();
    drop(rig.stdout);
    let next = |rig: Option<ExecFrame>| rig.unwrap();
    assert_eq!(next(rig.client.next().await.unwrap()), ExecFrame::Output(Bytes::from_static(b"bye")));
    assert_eq!(next(rig.client.next().await.unwrap()), ExecFrame::Exit(7));
    assert_eq!(rig.client.next().await.unwrap(), None);
    assert_eq!(rig.ended.await.unwrap(), SessionEnd::Exited(7));
}

#[tokio::test(start_paused = true)]
async fn output_that_another_process_holds_open_is_not_waited_for() {
    let mut rig = rig();
    rig.exit.send(Ok(0)).unwrap();
    assert_eq!(rig.client.next().await.unwrap(), Some(ExecFrame::Exit(0)));
    assert_eq!(rig.ended.await.unwrap(), SessionEnd::Exited(0));
    drop(rig.stdout);
}

#[tokio::test]
async fn client_that_grants_no_credit_stops_the_output_at_the_window() {
    let mut rig = rig();
    let flood = tokio::spawn(async move {
        let mut written = 0_usize;
        while rig.stdout.write_all(&[b'x'; 1024]).await.is_ok() {
            written += 1024;
            if written >= 1 << 20 {
                break;
            }
        }
        rig.stdout
    });
    let (mut got, mut granted) = (0, 0);
    while got < WINDOW {
        match rig.client.next().await.unwrap() {
            Some(ExecFrame::Output(bytes)) => got += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, WINDOW);
    assert!(!flood.is_finished(), "the rest waits in the pipe");
    // Each grant brings as much, and no more.
    while got < 1 << 20 {
        let credit = u32::try_from(got - granted).unwrap();
        rig.writer.write_all(&ExecFrame::Credit(credit).encode()).await.unwrap();
        granted = got;
        match rig.client.next().await.unwrap() {
            Some(ExecFrame::Output(bytes)) => got += bytes.len(),
            other => panic!("{other:?}"),
        }
        assert!(got <= granted + WINDOW);
    }
    drop(flood.await.unwrap());
}

#[tokio::test]
async fn more_input_or_credit_than_granted_ends_the_session_and_its_command() {
    for frames in [
        vec![ExecFrame::Input(Bytes::from(vec![0; LONGEST_PAYLOAD])); 9],
        vec![ExecFrame::Credit(1)],
        vec![ExecFrame::Exit(0)],
    ] {
        let mut rig = rig();
        for frame in frames {
            rig.send(frame).await;
        }
        assert!(matches!(rig.ended.await.unwrap(), SessionEnd::Misbehaved(_)));
        assert!(rig.held.await.is_err(), "its hold is dropped");
    }
}

#[tokio::test]
async fn exec_client_disconnect_ends_the_command() {
    let rig = rig();
    drop((rig.client, rig.writer));
    assert_eq!(rig.ended.await.unwrap(), SessionEnd::ClientDisconnected);
    assert!(rig.held.await.is_err());
}

#[tokio::test]
async fn agent_that_stops_ends_the_session() {
    let rig = rig();
    rig.stop.send_replace(true);
    assert_eq!(rig.ended.await.unwrap(), SessionEnd::AgentStops);
    assert!(rig.held.await.is_err());
}

#[tokio::test]
async fn input_is_written_granted_and_closed_and_sizes_arrive() {
    let mut rig = rig();
    rig.send(ExecFrame::Size(WindowSize { columns: 132, rows: 50 })).await;
    rig.send(ExecFrame::Input(Bytes::from_static(b"typed"))).await;
    let mut read = [0; 5];
    rig.stdin.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"typed");
    assert_eq!(rig.next().await, Some(ExecFrame::Credit(5)));
    rig.send(ExecFrame::EndOfInput).await;
    assert_eq!(rig.stdin.read(&mut read).await.unwrap(), 0, "its end");
    assert_eq!(*rig.sizes.wait_for(|size| size.columns == 132).await.unwrap(), WindowSize { columns: 132, rows: 50 });
    rig.send(ExecFrame::Input(Bytes::from_static(b"late"))).await;
    assert!(matches!(rig.ended.await.unwrap(), SessionEnd::Misbehaved(_)), "after the end of input");
}
