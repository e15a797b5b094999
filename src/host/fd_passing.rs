//! Messages over a Unix socket, each whole, with descriptors beside them.
//!
//! Source: unix(7), `SOCK_SEQPACKET` and `SCM_RIGHTS`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// So many descriptors go with one message, at most.
pub const MOST_DESCRIPTORS: usize = 4;

/// Two ends of one line.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Errors: as sendmsg(2); `InvalidInput`: more than [`MOST_DESCRIPTORS`].
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    // The space is aligned, so that one more would fit.
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message: its length and its descriptors. The length 0: the other end is gone. What does not fit is cut off.
///
/// Errors: as recvmsg(2).
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((got.bytes, descriptors.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_with_their_descriptors_and_then_the_end() {
        let (own, peer) = pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        send(&own, b"first", &[file.as_fd(), file.as_fd()]).unwrap();
        send(&own, b"second", &[]).unwrap();
        assert!(send(&own, b"x", &[file.as_fd(); MOST_DESCRIPTORS + 1]).is_err());
        drop(own);
        let mut bytes = [0; 16];
        let (length, descriptors) = receive(&peer, &mut bytes).unwrap();
        assert_eq!((&bytes[..length], descriptors.len()), (&b"first"[..], 2));
        let (length, descriptors) = receive(&peer, &mut bytes).unwrap();
        assert_eq!((&bytes[..length], descriptors.len()), (&b"second"[..], 0));
        assert_eq!(receive(&peer, &mut bytes).unwrap().0, 0);
    }
}
