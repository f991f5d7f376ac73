//! Tests logins, and the commands that clients send first.

use super::*;

#[tokio::test]
async fn what_clients_send_first_is_answered() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    for (line, expected) in [
        ("PING", "PONG"),
        ("PING hi", "hi"),
        ("ECHO hi", "hi"),
        ("SELECT 0", "OK"),
        ("SELECT 1", "-ERR DB index is out of range"),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME worker", "OK"),
        ("CLIENT GETNAME", "worker"),
        (
            "CLIENT SETNAME '\r'",
            "-ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT SETINFO LIB-NAME redis-py", "OK"),
        ("CLIENT ID", "1"),
        (
            "CLIENT KILL x",
            "-ERR unknown subcommand or wrong number of arguments for 'KILL' of CLIENT",
        ),
        ("CONFIG GET save", "[]"),
        ("COMMAND COUNT", "32"),
        ("COMMAND INFO ping nothing", "[[ping -1 [loading stale fast] 0 0 0] nil]"),
        ("COMMAND DOCS quit", "[quit [summary Ends the connection since 0.1.0 group connection]]"),
        (
            "HELLO 2",
            "[server tidegate version 0.1.0 proto 2 id 1 mode standalone role master modules []]",
        ),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "HELLO 2 SETNAME other",
            "[server tidegate version 0.1.0 proto 2 id 1 mode standalone role master modules []]",
        ),
        ("CLIENT GETNAME", "other"),
        ("RESET", "RESET"),
        ("CLIENT GETNAME", "nil"),
        ("AUTH s3cret", "-ERR AUTH is called, and no password is set for this server"),
        ("GET k", "-ERR unknown command 'GET'"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
    ] {
        assert_eq!(ask(client, line).await, expected, "{line}");
    }
    let info = ask(client, "INFO").await;
    assert!(info.contains("\r\nredis_version:7.2.0\r\n") && info.contains("loading:0"), "{info}");
    assert!(info.contains("connected_clients:1\r\nmaxclients:10000\r\n"), "{info}");
    let replication = ask(client, "INFO replication").await;
    assert!(replication.starts_with("# Replication\r\nrole:master"), "{replication}");
    assert!(ask(client, "COMMAND").await.starts_with("[[cl.throttle -5 [write fast] 1 1 1] "));
    // `COMMAND INFO` and `COMMAND DOCS` accept at most 32 names, so that a short command cannot
    // cause a very long reply.
    let most = ask(client, &format!("COMMAND INFO{}", " ping".repeat(32))).await;
    assert!(most.starts_with("[[ping "), "{most}");
    let more = ask(client, &format!("COMMAND DOCS{}", " ping".repeat(33))).await;
    assert!(more.starts_with("-ERR unknown subcommand or wrong number of arguments"), "{more}");
}

#[tokio::test]
async fn resp3_has_maps_and_nulls() {
    let server = Server::start().await;
    let answer = server.answer(b"HELLO 3\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\nQUIT\r\n");
    let answer = answer.await;
    assert!(answer.starts_with("%7\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n"), "{answer}");
    assert!(answer.ends_with("*0\r\n_\r\n+RESET\r\n$-1\r\n+OK\r\n"), "{answer}");
}

#[tokio::test]
async fn without_a_login_nothing_is_decided() {
    let server = Server::with(with_login()).await;
    let client = &mut server.client().await;
    for (line, expected) in [
        ("PING", "-NOAUTH Authentication required."),
        ("CL.THROTTLE k 1 1 1", "-NOAUTH Authentication required."),
        ("NOTHING", "-NOAUTH Authentication required."),
        ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
        ("AUTH other s3cret", "-WRONGPASS invalid username-password pair or user is disabled."),
        (
            "HELLO 3 AUTH default s3cre",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH s3cret", "OK"),
        ("PING", "PONG"),
        ("RESET", "RESET"),
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH default s3cret", "OK"),
        ("CL.THROTTLE k 1 1 1", "[0 2 1 -1 1]"),
    ] {
        assert_eq!(ask(client, line).await, expected, "{line}");
    }
    let hello = ask(&mut server.client().await, "HELLO").await;
    assert!(hello.starts_with("-NOAUTH HELLO must be called"), "{hello}");
    let answer = server.answer(b"HELLO 3 AUTH default s3cret SETNAME x\r\nPING\r\nQUIT\r\n").await;
    assert!(answer.starts_with("%7\r\n") && answer.ends_with("+PONG\r\n+OK\r\n"), "{answer}");
    // Before a login, arguments may have at most 16 KiB, as in Redis. After a login in the same
    // pipeline, they may be larger.
    let large = format!("*2\r\n$4\r\nECHO\r\n$20000\r\n{}\r\n", "x".repeat(20_000));
    let answer = server.answer(large.as_bytes()).await;
    assert!(answer.contains("an argument has a length of 20000; 0 to 16384 are possible"));
    let answer = server.answer(format!("AUTH s3cret\r\n{large}QUIT\r\n").as_bytes()).await;
    assert!(answer.starts_with("+OK\r\n$20000\r\nxx") && answer.ends_with("x\r\n+OK\r\n"));
}

#[tokio::test]
async fn b95_logins_are_compared_byte_by_byte() {
    let mut settings = RespSettings::default();
    settings.login = Some(Login { user: "dav\u{e9}".into(), password: "s3cr\u{e9}t".into() });
    let server = Server::with(settings).await;
    for (user, password, is_right) in [
        (&b"dav\xc3\xa9"[..], &b"s3cr\xc3\xa9t"[..], true),
        // These logins are wrong: they contain the right texts in Latin-1, or other bytes that are
        // not UTF-8.
        (b"dav\xe9", b"s3cr\xc3\xa9t", false),
        (b"dav\xc3\xa9", b"s3cr\xe9t", false),
        (b"dav\xc3\xa9", b"s3cr\xc3\xa9t\xff", false),
        (b"\xff", b"\xff", false),
    ] {
        for command in
            [vec![&b"AUTH"[..], user, password], vec![b"HELLO", b"2", b"AUTH", user, password]]
        {
            let client = &mut server.client().await;
            let answer = show(&client.call(&command).await.unwrap());
            assert_eq!(answer.starts_with("-WRONGPASS "), !is_right, "{command:?}: {answer}");
            let expected = if is_right { "PONG" } else { "-NOAUTH Authentication required." };
            assert_eq!(ask(client, "PING").await, expected);
        }
    }
}

#[tokio::test]
async fn the_tenth_failed_login_in_a_row_ends_the_connection() {
    let server = Server::with(with_login()).await;
    let wrong = "AUTH wrong\r\n".repeat(9);
    let all = format!("{wrong}AUTH s3cret\r\n{wrong}PING\r\nQUIT\r\n");
    let answer = server.answer(all.as_bytes()).await;
    assert!(answer.ends_with("+PONG\r\n+OK\r\n"), "{answer}");
    let all = format!("{wrong}PING\r\nRESET\r\nHELLO 3 AUTH default wrong\r\nAUTH s3cret\r\n");
    let answer = server.answer(all.as_bytes()).await;
    assert_eq!(answer.matches("-WRONGPASS").count(), 10, "{answer}");
    assert!(answer.ends_with("user is disabled.\r\n"), "{answer}");
}
