//! Reads from a certificate how long it is valid: the one thing in it that nobody here tells us otherwise (RFC 5280, 4.1).

use chrono::{DateTime, NaiveDate, Utc};
use rustls::pki_types::CertificateDer;

/// From when until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: DateTime<Utc>,
    pub(super) not_after: DateTime<Utc>,
}

/// Why that cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its validity is not where it should be")]
pub(crate) struct ValidityError;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// How long a certificate is valid.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, ValidityError> {
    let mut outer = Reader(certificate);
    let mut body = Reader(Reader(outer.expect(SEQUENCE)?).expect(SEQUENCE)?);
    if body.0.first() == Some(&VERSION) {
        body.next()?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        body.next()?;
    }
    let mut validity = Reader(body.expect(SEQUENCE)?);
    Ok(Validity {
        not_before: validity.time()?,
        not_after: validity.time()?,
    })
}

/// What is left of a sequence of elements.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Tag and content of the next element.
    fn next(&mut self) -> Result<(u8, &'a [u8]), ValidityError> {
        let (&tag, rest) = self.0.split_first().ok_or(ValidityError)?;
        let (&first, rest) = rest.split_first().ok_or(ValidityError)?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest
                    .split_at_checked(usize::from(first & 0x7f))
                    .ok_or(ValidityError)?;
                let length = digits.iter().try_fold(0_usize, |sum, digit| {
                    sum.checked_mul(256)?.checked_add((*digit).into())
                });
                (length.ok_or(ValidityError)?, rest)
            }
            _ => return Err(ValidityError),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(ValidityError)?;
        self.0 = rest;
        Ok((tag, content))
    }

    fn expect(&mut self, expected: u8) -> Result<&'a [u8], ValidityError> {
        let (tag, content) = self.next()?;
        (tag == expected).then_some(content).ok_or(ValidityError)
    }

    fn time(&mut self) -> Result<DateTime<Utc>, ValidityError> {
        let (tag, content) = self.next()?;
        let text = std::str::from_utf8(content).map_err(|_| ValidityError)?;
        let digits = text.strip_suffix('Z').ok_or(ValidityError)?;
        let years = match tag {
            UTC_TIME => 2,
            GENERALIZED_TIME => 4,
            _ => return Err(ValidityError),
        };
        if digits.len() != years + 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ValidityError);
        }
        let number = |from: usize, to: usize| -> Result<u32, ValidityError> {
            let digits = digits.get(from..to).ok_or(ValidityError)?;
            digits.parse().map_err(|_| ValidityError)
        };
        let pairs = |index: usize| number(years + 2 * index, years + 2 * index + 2);
        let year = match (tag, number(0, years)?) {
            (UTC_TIME, year @ 0..50) => year + 2000,
            (UTC_TIME, year) => year + 1900,
            (_, year) => year,
        };
        let year = i32::try_from(year).map_err(|_| ValidityError)?;
        let day = NaiveDate::from_ymd_opt(year, pairs(0)?, pairs(1)?).ok_or(ValidityError)?;
        let time = day
            .and_hms_opt(pairs(2)?, pairs(3)?, pairs(4)?.min(59))
            .ok_or(ValidityError)?;
        Ok(time.and_utc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(from: (i32, u8, u8), to: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(["x".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(to.0, to.1, to.2);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn day(year: i32, month: u32, day: u32) -> DateTime<Utc> {
        let day = NaiveDate::from_ymd_opt(year, month, day).unwrap();
        day.and_hms_opt(0, 0, 0).unwrap().and_utc()
    }

    #[test]
    fn both_notations_of_time_are_read() {
        let certificate = made((1999, 12, 31), (2049, 12, 31));
        let expected = Validity {
            not_before: day(1999, 12, 31),
            not_after: day(2049, 12, 31),
        };
        assert_eq!(validity(&certificate), Ok(expected));
        let certificate = made((2026, 3, 1), (4096, 1, 1));
        let expected = Validity {
            not_before: day(2026, 3, 1),
            not_after: day(4096, 1, 1),
        };
        assert_eq!(validity(&certificate), Ok(expected));
    }

    proptest! {
        #[test]
        fn nothing_panics(change in 0_usize..400, to: u8, length in 0_usize..400) {
            let mut bytes = made((2026, 3, 1), (2049, 1, 1)).to_vec();
            if let Some(byte) = bytes.get_mut(change) {
                *byte = to;
            }
            bytes.truncate(length);
            let _any = validity(&CertificateDer::from(bytes));
        }
    }
}
