//! The laws that hold for every quantity.

use proptest::prelude::*;

use super::*;

/// Texts of the shape of a quantity, from everyday to absurd, negative and spelled oddly too.
fn texts() -> impl Strategy<Value = String> {
    let suffix = prop_oneof![
        4 => "(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?",
        1 => "[eE][+-]?[0-9]{1,2}",
        1 => "[eE][+-]?[0-9]{3}",
    ];
    ("[+-]?", "[0-9]{1,25}", r"(\.[0-9]{0,20})?", suffix).prop_map(|(a, b, c, d)| format!("{a}{b}{c}{d}"))
}

fn quantities() -> impl Strategy<Value = Quantity> {
    texts().prop_map(|text| text.parse().unwrap())
}

/// Kubernetes has no name beyond `E` or `Ei`, so only what it can name comes back from its text.
fn can_be_named(quantity: &Quantity) -> bool {
    let bound: Quantity = "1e21".parse().unwrap();
    let size = if quantity.sign().is_lt() {
        -quantity
    } else {
        quantity.clone()
    };
    quantity.format() == Format::DecimalExponent || size.cmp_value(&bound).is_lt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_answered(text in ".*") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn any_text_of_quantity_letters_is_answered_and_prints(text in "[+-]?[0-9.]{0,30}[eEinumkKMGTP]{0,3}[+-]?[0-9]{0,6}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert!(!quantity.to_string().is_empty());
            prop_assert!(quantity.rounded_up_to_units().is_whole_units());
            let _ = (quantity.milli(), quantity.units(), quantity.approximate_f64());
        }
    }

    #[test]
    fn what_is_printed_is_read_back(quantity in quantities()) {
        prop_assume!(can_be_named(&quantity));
        for printed in [quantity.to_string(), quantity.clone().canonical().to_string()] {
            let read: Quantity = printed.parse().unwrap();
            prop_assert!(read.same_value(&quantity), "{} became {}", printed, read);
            prop_assert_eq!(read.to_string(), printed);
        }
    }

    #[test]
    fn subtraction_undoes_addition(a in quantities(), b in quantities()) {
        prop_assert!((&(&a + &b) - &b).same_value(&a));
        prop_assert!((&a - &b).same_value(&-&(&b - &a)));
        prop_assert!((&a + &b).same_value(&(&b + &a)));
    }

    #[test]
    fn order_is_total_and_is_the_sign_of_the_difference(a in quantities(), b in quantities(), c in quantities()) {
        prop_assert_eq!(a.cmp_value(&b), (&a - &b).sign());
        prop_assert_eq!(a.cmp_value(&b), b.cmp_value(&a).reverse());
        if a.cmp_value(&b).is_le() && b.cmp_value(&c).is_le() {
            prop_assert!(a.cmp_value(&c).is_le());
        }
    }

    #[test]
    fn rounding_moves_less_than_a_unit_away_from_zero(quantity in quantities()) {
        let rounded = quantity.rounded_up_to_units();
        let size = |q: &Quantity| if q.sign().is_lt() { -q } else { q.clone() };
        let moved = &size(&rounded) - &size(&quantity);
        prop_assert!(moved.sign().is_ge());
        prop_assert!(moved.cmp_value(&Quantity::from_units(1, Format::DecimalSi)).is_lt());
        prop_assert_eq!(quantity.is_whole_units(), moved.is_zero());
        prop_assert_eq!(quantity.units(), rounded.units());
        if let Some(milli) = quantity.milli() {
            let there = Quantity::from_milli(milli, quantity.format());
            prop_assert_eq!(quantity.is_whole_milli(), there.same_value(&quantity));
            prop_assert!(size(&there).cmp_value(&size(&quantity)).is_ge());
        }
    }

    #[test]
    fn equality_is_kept_by_json(quantity in quantities()) {
        prop_assume!(can_be_named(&quantity));
        let json = serde_json::to_string(&quantity).unwrap();
        let read: Quantity = serde_json::from_str(&json).unwrap();
        prop_assert!(read.same_value(&quantity));
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn floor_and_ceiling_of_a_ratio_enclose_it(value in 0..1_i64 << 40, numerator in 0..1_i64 << 20, denominator in 1..1_i64 << 20) {
        let scaled = |rounding| {
            let scaled = Bytes(value).scaled(Bytes(numerator), Bytes(denominator), rounding).unwrap();
            assert!(!scaled.overflowed);
            i128::from(scaled.value.0) * i128::from(denominator)
        };
        let product = i128::from(value) * i128::from(numerator);
        prop_assert!(scaled(Rounding::Floor) <= product && product < scaled(Rounding::Floor) + i128::from(denominator));
        prop_assert!(scaled(Rounding::Ceil) >= product && product > scaled(Rounding::Ceil) - i128::from(denominator));
    }
}
