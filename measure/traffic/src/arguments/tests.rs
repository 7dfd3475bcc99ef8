use super::*;
use crate::plan::{Length, Role, Transport};
use proptest::prelude::*;

fn request(line: &str) -> Request {
    match parse(line.split(' ').map(String::from)) {
        Ok(Invocation::Run(request)) => *request,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    parse(line.split(' ').map(String::from)).unwrap_err().to_string()
}

const WORDS: [&str; 46] = [
    "-s",
    "-r",
    "-S",
    "-R",
    "-m",
    "-M",
    "1,*,10.0.0.1",
    "8,0,::1",
    "8,*,x.x.x.x",
    "-l",
    "64k",
    "512",
    "-a",
    "6",
    "-t",
    "30",
    "0",
    "-p",
    "20001",
    "-rb",
    "-sb",
    "-1",
    "-wu",
    "-cd",
    "-u",
    "-6",
    "-ns",
    "-ndl",
    "-v",
    "-xml",
    "-P",
    "-n",
    "-e",
    "-W",
    "-C",
    "-N",
    "-b",
    "-B",
    "-x",
    "-j",
    "--json",
    "--dialect",
    "windows",
    "linux",
    "99999999999999999999",
    "-f25001",
];

proptest! {
    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop_oneof![
        4 => prop::sample::select(WORDS.to_vec()).prop_map(String::from),
        1 => ".{0,12}",
    ], 0..14)) {
        if let Ok(Invocation::Run(request)) = parse(words.into_iter()) {
            prop_assert!(request.plan.check().is_ok());
        }
    }

    #[test]
    fn windows_options_are_read_alike_in_any_case(upper in any::<bool>(), threads in 1u16..1024, seconds in 1u32..60) {
        let options = "-r -m # -l 64k -a 6 -rb 512k -wu 3 -cd 2 -p 20001 -t %";
        let options = if upper { options.to_uppercase().replace("64K", "64k") } else { options.into() };
        let line = options.replace('#', &format!("{threads},*,10.0.0.1")).replace('%', &seconds.to_string());
        let plan = request(&line).plan;
        prop_assert_eq!(plan.mappings[0].ports, threads);
        prop_assert_eq!((plan.length, plan.warm_up_s, plan.base_port), (Length::Seconds(seconds), 3, 20_001));
        prop_assert_eq!(plan.receive_socket_bytes, Some(512 * 1024));
    }
}

#[test]
fn the_validation_guides_lines_are_read_as_they_stand() {
    for (line, role) in [
        (r".\NTttcp.exe -R -M 1,*,192.168.24.102 -l 64k -a 6 -t 30", Role::Receiver),
        (r".\NTttcp.exe -S -M 1,*,192.168.24.102 -l 64k -a 6 -t 30", Role::Sender),
    ] {
        let request = request(line);
        let plan = &request.plan;
        assert_eq!((plan.role, request.dialect), (role, Dialect::Windows));
        assert_eq!((plan.mappings[0].ports, plan.mappings[0].processor), (1, None));
        assert_eq!(
            (plan.buffer_bytes, plan.outstanding, plan.length),
            (65_536, 6, Length::Seconds(30))
        );
        assert!(plan.notes[0].starts_with("-a 6 is served by epoll"), "{:?}", plan.notes);
    }
}

#[test]
fn the_vmmq_papers_lines_are_read_with_numbers_for_their_placeholders() {
    let receiver = request("ntttcp.exe -r -m 16,*,10.0.0.2 -p 20001 -rb 512k -t 20 -l 512");
    assert_eq!(
        (receiver.plan.buffer_bytes, receiver.plan.receive_socket_bytes),
        (512, Some(524_288))
    );
    let sender = request("ntttcp.exe -s -m 1,*,10.0.0.2 -p 20001 -sb 256k -t 20 -l 512K");
    assert_eq!((sender.plan.role, sender.plan.buffer_bytes), (Role::Sender, 524_288));
    assert_eq!((sender.plan.send_socket_bytes, sender.plan.base_port), (Some(262_144), 20_001));
    let placeholder =
        refusal("ntttcp.exe -s -m <connections>,*,x.x.x.x -p 20001 -sb 256k -t 20 -l 512K");
    assert!(placeholder.contains("THREADS,PROCESSOR,ADDRESS"), "{placeholder}");
}

#[test]
fn ntttcp_for_linux_lines_are_read() {
    let sender = request("-s 192.168.1.1 -P 64 -n 16 -l 10 -f25001 -W 2 -C 1 -V").plan;
    assert_eq!((sender.connections(), sender.source_port), (10_240, Some(25_001)));
}

#[test]
fn ntttcp_for_linux_defaults_hold() {
    let plan = request("-s 192.168.1.1").plan;
    assert_eq!((plan.threads(), plan.connections(), plan.buffer_bytes), (64, 64, 131_072));
    assert_eq!((plan.length, plan.base_port, plan.sync), (Length::Seconds(60), 5001, true));
    assert_eq!(request("-r").plan.threads(), 16);
    let mapped =
        request("-r -m 8,0,::1 -6 -V -D --show-tcp-retrans --show-nic-packets eth0 --no-delay")
            .plan;
    assert_eq!((mapped.mappings[0].processor, mapped.no_delay), (Some(0), true));
    assert_eq!(mapped.interface.as_deref(), Some("eth0"));
    let multi = request("-r -M -e -N -u -x out.xml -j");
    assert!(multi.plan.multi_client && !multi.plan.sync && multi.plan.transport == Transport::Udp);
    assert_eq!(multi.output.xml, Some(Destination::File("out.xml".into())));
    // Their JSON under their name, and ours under ours.
    assert_eq!(multi.output.linux_json, Some("ntttcp-for-linux-log.json".into()));
    assert_eq!(multi.output.json, None);
}

#[test]
fn what_could_be_either_is_refused_with_what_to_type() {
    let either = refusal("-s -m 8,*,192.168.1.1 -n 16");
    assert!(
        either.contains("-n 16") && either.contains("--dialect windows or --dialect linux"),
        "{either}"
    );
    assert!(refusal("-s -m 8,*,192.168.1.1 -l 512").contains("the buffer length"));
    assert!(refusal("-s -m 8,*,192.168.1.1 -rb 64k -W 5").contains("ntttcp-for-linux's"));
    let linux = request("-s -m 8,*,192.168.1.1 -n 16 --dialect linux").plan;
    assert_eq!((linux.threads_per_port, linux.threads()), (16, 128));
    let windows = request("-s -m 8,*,192.168.1.1 -n 16 --dialect=windows").plan;
    assert_eq!(windows.length, Length::Buffers(16));
}

#[test]
fn several_mappings_pin_several_processors() {
    let plan = request("-r -m 2,0,10.0.0.1 2,1,10.0.0.1 -t 5 -ns").plan;
    assert_eq!(
        (plan.mappings.len(), plan.threads(), plan.ports_at(plan.mappings[0].host)),
        (2, 4, 4)
    );
    assert_eq!(plan.mappings[1].processor, Some(1));
}

/// Another address began at the base port again, so a Windows receiver behind it was not found.
#[test]
fn ports_count_on_through_the_mappings_as_windows_has_it() {
    let line = "-s -m 2,0,10.0.0.1 2,*,10.0.0.2 1,1,10.0.0.1 -p 5001 -t 5";
    let plan = request(line).plan;
    let ports = plan.data_ports();
    let told: Vec<_> = ports.iter().map(|(address, _)| address.to_string()).collect();
    assert_eq!(
        told,
        ["10.0.0.1:5001", "10.0.0.1:5002", "10.0.0.2:5003", "10.0.0.2:5004", "10.0.0.1:5005"]
    );
    assert_eq!(ports[4].1, Some(1));
    let other = plan.mappings[1].host;
    assert_eq!(plan.sync_port(other).port(), 5002);
    let tokens: Vec<_> = plan.token_ports(other).iter().map(|address| address.port()).collect();
    assert_eq!(tokens, [6003, 6004]);
}

#[test]
fn ports_of_all_mappings_together_are_within_range() {
    let line = |port: u32| format!("-s -m 2,*,10.0.0.1 2,*,10.0.0.2 -p {port} -t 5");
    request(&line(65532));
    let refused = refusal(&line(65533));
    assert!(refused.contains("65533 to 65536"), "{refused}");
}

#[test]
fn refusals_name_the_option_and_the_remedy() {
    for (line, words) in [
        ("-s -r -t 5 -m 1,*,10.0.0.1", "either a sender or a receiver"),
        ("-s -rb 64k", "needs -m"),
        ("-s", "receiver's address"),
        ("-r -p 1", "from 2 to 65535"),
        ("-r -p 65530", "out of range"),
        ("-r -P 20000 -e", "is Windows"),
        ("-s 10.0.0.1 -P 512 -n 512", "65536"),
        ("-r -6 -m 1,*,10.0.0.1", "IPv4 address"),
        ("-r --nonsense", "--help"),
        ("-r -t", "needs a value"),
        ("-r -m 1,*,10.0.0.1 -t 5 -hv -rb 1", "omit it"),
        ("-s -m 1,*,10.0.0.1 -t 5 -lm --latency", "omit one"),
        ("-s -m 1,*,10.0.0.1 -t 5 -uso", "needs a value"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(words), "{line}: {refusal}");
    }
}

#[test]
fn windows_options_without_a_counterpart_are_taken_with_their_values_and_noted() {
    let line = "-s -m 2,*,10.0.0.1 -t 5 -u -uso 9000 -uro -ps 20 -qos 3 -brn 100 -na 0 -icp 4";
    let notes = request(line).plan.notes;
    for option in ["-uso", "-uro", "-ps", "-qos", "-brn", "-na", "-icp"] {
        let about = |note: &&String| note.starts_with(&format!("{option} has no effect"));
        assert_eq!(notes.iter().filter(about).count(), 1, "{option}: {notes:?}");
    }
    let paced = request("-s -m 2,*,10.0.0.1 -t 5 -thr 1000").plan;
    assert_eq!(paced.bandwidth_bits_per_s, Some(2 * 1000 * 1024 * 8));
}

#[test]
fn a_verbose_run_tells_what_its_mappings_have_come_to() {
    for line in ["-s -m 2,1,10.0.0.1 -rb 1k -v", "-s -m 2,1,10.0.0.1 -P 2 -n 1 -V"] {
        let notes = request(line).plan.notes.join("\n");
        assert!(
            notes.contains("2 ports of 10.0.0.1") && notes.contains("on processor 1"),
            "{notes}"
        );
        let quiet = request(&line[..line.len() - 3]).plan.notes;
        assert!(!quiet.join("").contains("2 ports of"), "{quiet:?}");
    }
}
