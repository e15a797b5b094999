//! Promise (Input validation): Cron expressions are due as Nomad reads them, also when the clocks change

use proptest::prelude::*;

use super::*;

/// Of 2026-11-28 12:00:00 UTC, a Saturday.
const NOON: i64 = 1_795_867_200;

fn seconds(moment: &str) -> i64 {
    moment.parse::<jiff::Timestamp>().unwrap().as_second()
}
fn shown(second: i64) -> String {
    jiff::Timestamp::from_second(second).unwrap().to_string()
}
fn next(cron: &str, zone: &str, after: &str) -> String {
    let expression = CronExpression::parse(cron).unwrap();
    expression.next_after(seconds(after), &Zone::named(zone).unwrap()).map_or("never".to_owned(), shown)
}

#[test]
fn fields_match_as_nomad_reads_them() {
    assert_eq!(shown(NOON), "2026-11-28T12:00:00Z");
    for (cron, due) in [
        ("* * * * *", "2026-11-28T12:01:00Z"),
        ("*/15 * * * * *", "2026-11-28T12:15:00Z"),
        ("*/15 * * * * * *", "2026-11-28T12:00:15Z"),
        ("0 0 1 1 * 2030", "2030-01-01T00:00:00Z"),
        ("30 1 2 3 4 * 2027", "2027-04-03T02:01:30Z"),
        ("@hourly", "2026-11-28T13:00:00Z"),
        ("@daily", "2026-11-29T00:00:00Z"),
        ("@weekly", "2026-11-29T00:00:00Z"),
        ("@monthly", "2026-12-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("5,10,59 11-12 * * *", "2026-11-28T12:05:00Z"),
        ("20/20 * * * *", "2026-11-28T12:20:00Z"),
        ("0 6 * JAN mon", "2027-01-04T06:00:00Z"),
        ("0 6 * february Wednesday", "2027-02-03T06:00:00Z"),
        ("0 0 ? * 7", "2026-11-29T00:00:00Z"),
        ("0 0 * * fri-sun", "2026-11-29T00:00:00Z"),
        ("0 0 * * 5-7", "2026-11-29T00:00:00Z"),
        ("0 0 * * 7-1", "2026-11-29T00:00:00Z"),
        ("0 0 13 * 5", "2026-12-04T00:00:00Z"),
        ("0 0 L * *", "2026-11-30T00:00:00Z"),
        ("0 0 L-3 * *", "2026-12-28T00:00:00Z"),
        ("0 0 LW * *", "2026-11-30T00:00:00Z"),
        ("0 0 29W 11 *", "2026-11-30T00:00:00Z"),
        ("0 0 1W 5 *", "2027-05-03T00:00:00Z"),
        ("0 0 31W 1 *", "2027-01-29T00:00:00Z"),
        ("0 0 * * 5L", "2026-12-25T00:00:00Z"),
        ("0 0 * * 2#3", "2026-12-15T00:00:00Z"),
        ("0 0 * * fri#5", "2027-01-29T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 30 2 *", "never"),
        ("0 0 1 1 * 2026", "never"),
    ] {
        assert_eq!(next(cron, "UTC", "2026-11-28T12:00:00Z"), due, "{cron}");
    }
    let eight = CronExpression::parse("0 0 0 1 1 * * extra").unwrap();
    assert_eq!(eight, CronExpression::parse("@yearly").unwrap(), "what follows the seventh field is ignored");
}

#[test]
fn invalid_cron_expression_is_refused_with_its_wrong_part() {
    for (cron, part) in [
        ("", "has 0 of at least 5 fields"),
        ("*/5 * * *", "has 4 of at least 5 fields"),
        ("@midnight", "unknown descriptor"),
        ("60 * * * *", "\"60\" is no minute (0 to 59)"),
        ("* 24 * * *", "is no hour"),
        ("* * 0 * *", "is no day-of-month"),
        ("* * * 13 *", "is no month"),
        ("* * * jam *", "\"jam\" is no month"),
        ("* * * * 8", "is no day-of-week"),
        ("* * * * 5#6", "is no day-of-week"),
        ("* * * * * 1969", "is no year"),
        ("*/0 * * * *", "the step is 1 to 59"),
        ("*/60 * * * *", "the step is 1 to 59"),
        ("5-1 * * * *", "the range ends before it begins"),
        (", * * * *", "the field minute has no value"),
        ("+5 * * * *", "is no minute"),
        ("005 * * * *", "is no minute"),
        ("LW * * * *", "is no minute"),
    ] {
        let why = CronExpression::parse(cron).unwrap_err();
        assert!(why.contains(part), "{cron}: {why}");
    }
}

/// As Nomad documents it.
#[test]
fn a_skipped_hour_is_never_due_and_a_repeated_one_is_due_twice() {
    let in_new_york = |after: &str| next("30 2 * * *", "America/New_York", after);
    assert_eq!(in_new_york("2026-03-07T12:00:00Z"), "2026-03-09T06:30:00Z", "02:30 is skipped on 2026-03-08");
    let twice = |after: &str| next("30 1 * * *", "America/New_York", after);
    assert_eq!(twice("2026-10-31T12:00:00Z"), "2026-11-01T05:30:00Z");
    assert_eq!(twice("2026-11-01T05:30:00Z"), "2026-11-01T06:30:00Z");
    assert_eq!(twice("2026-11-01T06:30:00Z"), "2026-11-02T06:30:00Z");
    // Half an hour, at 02:00.
    assert_eq!(next("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z"), "2026-04-04T14:45:00Z");
    assert_eq!(next("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:45:00Z"), "2026-04-04T15:15:00Z");
    // A whole day.
    assert_eq!(next("0 0 30 12 * 2011", "Pacific/Apia", "2011-12-29T00:00:00Z"), "never");
}

#[test]
fn time_zone_is_found_only_by_its_exact_database_name() {
    for name in ["", "UTC", "Local", "Europe/Berlin", "America/New_York"] {
        assert!(Zone::named(name).is_some(), "{name}");
    }
    for name in ["Europe/Atlantis", "europe/berlin", "../../etc/passwd", "/etc/localtime", "UTC+1"] {
        assert!(Zone::named(name).is_none(), "{name}");
    }
}

#[test]
fn cron_schedule_uses_the_first_of_several_expressions() {
    let crons = ["@daily".to_owned(), "0 13 * * *".to_owned()];
    let schedule = CronSchedule::parse(&crons, "UTC").unwrap();
    let noon = u64::try_from(NOON).unwrap();
    assert_eq!(schedule.next_after(noon), Some(noon + 3_600));
    assert!(CronSchedule::parse(&crons, "Nowhere").unwrap_err().contains("time zone"));
}

fn expressions() -> impl Strategy<Value = String> {
    let minute = prop_oneof!["[0-5]?[0-9]", Just("*".to_owned()), Just("*/7".to_owned()), Just("10-50/3".to_owned())];
    let hour = prop_oneof!["1?[0-9]", Just("*".to_owned()), Just("0,2,3".to_owned())];
    let day = prop_oneof!["[1-9]|[12][0-9]|3[01]", Just("*".to_owned()), Just("L".to_owned()), Just("15W".to_owned())];
    let week = prop_oneof!["[0-7]", Just("*".to_owned()), Just("5L".to_owned()), Just("1#2".to_owned())];
    let month = prop_oneof!["[1-9]|1[0-2]", Just("*".to_owned())];
    (minute, hour, day, month, week).prop_map(|(m, h, d, mo, w)| format!("{m} {h} {d} {mo} {w}"))
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}", after in any::<i64>()) {
        if let Ok(expression) = CronExpression::parse(&text) {
            let _ = expression.next_after(after, &Zone::named("Europe/Berlin").unwrap());
        }
    }

    /// The next moment is later, matches on the local clock, and none between does: asked minute by minute, of at most
    /// two days.
    #[test]
    fn the_next_moment_is_the_first_that_matches_on_the_local_clock(
        cron in expressions(),
        after in 1_700_000_000_i64..1_900_000_000,
        name in prop_oneof![Just("UTC"), Just("America/New_York"), Just("Australia/Lord_Howe"), Just("Asia/Kathmandu")],
    ) {
        let expression = CronExpression::parse(&cron).unwrap();
        let zone = Zone::named(name).unwrap();
        let tz = jiff::tz::TimeZone::get(name).unwrap();
        let matches = |second: i64| {
            let local = tz.to_datetime(jiff::Timestamp::from_second(second).unwrap());
            let day = i64::from(local.day());
            let first = local.date().first_of_month();
            let days = i64::from(first.days_in_month());
            let epoch = first.duration_since(jiff::civil::date(1970, 1, 1)).as_secs() / 86_400;
            let bit = |bits: u64, at: i8| bits >> at & 1 == 1;
            bit(expression.months, local.month())
                && expression.has_day_for_tests(epoch, days, day)
                && bit(expression.hours, local.hour())
                && bit(expression.minutes, local.minute())
                && bit(expression.seconds, local.second())
        };
        let due = expression.next_after(after, &zone);
        prop_assert!(due.is_none_or(|due| due > after && matches(due)), "{:?}", due.map(shown));
        let until = due.unwrap_or(i64::MAX).min(after + 2 * 86_400);
        let mut minute = after - after.rem_euclid(60) + 60;
        while minute < until {
            prop_assert!(!matches(minute), "{} is between", shown(minute));
            minute += 60;
        }
    }
}
