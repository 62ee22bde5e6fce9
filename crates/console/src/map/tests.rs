//! Tests of maps with known coordinates.

use super::*;

fn square(lat: f64, lng: f64, side: f64) -> Vec<LatLng> {
    [(0.0, 0.0), (0.0, side), (side, side), (side, 0.0), (0.0, 0.0)]
        .map(|(up, right)| LatLng::new(lat + up, lng + right))
        .to_vec()
}

fn shape(id: &str, outlines: Vec<Vec<LatLng>>, utilization: f64) -> AreaShape<'_> {
    AreaShape { id, outlines, load: AreaShade::new(false, utilization), utilization, told: format!("<{id}>") }
}

/// Checks that every coordinate of every path is inside the drawing.
fn assert_inside(svg: &str) {
    let size = svg.split("viewBox=\"0 0 ").nth(1).unwrap().split('"').next().unwrap();
    let (wide, high) = size.split_once(' ').unwrap();
    let (wide, high): (f64, f64) = (wide.parse().unwrap(), high.parse().unwrap());
    let paths: Vec<&str> = svg.split(" d=\"M").skip(1).map(|rest| rest.split(['Z', '"']).next().unwrap()).collect();
    for pair in paths.iter().filter(|path| path.contains('L') && path.contains('.')).flat_map(|path| path.split('L')) {
        let Some((x, y)) = pair.split_once(' ') else { continue };
        let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
        assert!((0.0..=wide).contains(&x) && (0.0..=high).contains(&y), "{pair} in {svg}");
    }
}

#[test]
fn load_is_shown_in_steps() {
    for (share, load) in [
        (0.0, AreaShade::Calm),
        (0.49, AreaShade::Calm),
        (0.5, AreaShade::Filling),
        (0.8, AreaShade::Near),
        (0.999, AreaShade::Near),
        (1.0, AreaShade::Full),
        (7.0, AreaShade::Full),
        (f64::NAN, AreaShade::Calm),
    ] {
        assert_eq!(AreaShade::new(false, share), load, "{share}");
    }
    assert_eq!(AreaShade::new(true, 0.1), AreaShade::Closed);
}

#[test]
fn areas_have_outline_pattern_and_label() {
    let city = shape("CITY", vec![square(-6.3, 106.7, 0.2)], 0.83);
    let airport = shape("AIR & PORT", vec![square(-6.2, 106.8, 0.01), square(-6.25, 106.75, 0.01)], 1.2);
    let svg = draw_areas(vec![airport, city]);
    assert_inside(&svg);
    for text in [
        "<g class=\"area near\"><title>&lt;CITY&gt;</title>",
        "fill=\"url(#load-near)\"",
        ">83%</tspan></text>",
        "<g class=\"area full\">",
        ">AIR &amp; PORT<tspan ",
        "Closed by staff",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let place = |text: &str| svg.find(text).unwrap();
    assert!(place(">CITY") < place(">AIR"), "the small one lies on the large one");
    assert!(!svg.contains("style"), "{svg}");
    // A ring is closed: its last point equals its first.
    assert_eq!(svg.matches("Z\"/>").count(), 4 + 2 * AreaShade::ALL.len(), "{svg}");
}

/// Returns the labels of a drawing in their order.
fn texts_of(svg: &str) -> Vec<&str> {
    svg.split("<text ").skip(1).filter_map(|rest| rest.split('>').nth(1)?.split('<').next()).collect()
}

#[test]
fn crowded_area_labels_shrink_to_the_share() {
    let near = |n: u8| f64::from(n) * 0.01;
    let names: Vec<String> = (0..9).map(|n| format!("A-LONG-NAME-{n}")).collect();
    // A row of nine narrow areas, of which the middle one is full.
    let row: Vec<_> = (0..9_u8)
        .map(|n| {
            let utilization = if n == 4 { 1.0 } else { 0.1 };
            shape(&names[usize::from(n)], vec![square(-6.2, 106.8 + near(n), 0.01)], utilization)
        })
        .collect();
    let svg = draw_areas(row);
    let texts = texts_of(&svg);
    assert!(texts.contains(&"A-LONG-NAME-4"), "the full one has its text: {texts:?}");
    assert!(texts.iter().filter(|text| text.starts_with("A-LONG")).count() < 6, "{texts:?}");
    assert!(texts.contains(&"10%"), "{texts:?}");
    assert_eq!(svg.matches("<title>").count(), 9, "each says what it is to who points at it");
}

#[test]
fn area_without_room_has_no_label() {
    let corner = shape("A-NAME-THAT-IS-VERY-LONG-INDEED", vec![square(0.0, 0.0, 0.001)], 0.2);
    let other = shape("B", vec![square(0.1, 0.2, 0.001)], 0.1);
    let svg = draw_areas(vec![corner, other]);
    assert_eq!(texts_of(&svg).iter().filter(|text| text.starts_with("A-NAME")).count(), 0, "{svg}");
}

#[test]
fn assigned_driver_keeps_its_label() {
    let pickup = LatLng::new(0.0, 0.0);
    let place = LatLng::new(0.001, 0.001);
    let mark = |id: &str, part| DriverMark { id: id.to_owned(), place, part };
    let mut drivers: Vec<_> = (0..9).map(|n| mark(&format!("E{n}"), DriverPart::WasAsked)).collect();
    drivers.push(mark("D1", DriverPart::Has));
    let svg = draw_order_on(&ORDER_SHEETS[0], pickup, &drivers, false);
    let texts = texts_of(&svg);
    assert!(texts.iter().any(|text| text.starts_with("D1 has the order")), "{texts:?}");
    assert_eq!(texts.iter().filter(|text| text.starts_with('E')).count(), 5, "{texts:?}");
    assert_eq!(svg.matches("had an offer").count(), 9 + 5, "each says so to who points at it: {svg}");
}

#[test]
fn shape_without_outline_is_not_drawn() {
    assert_eq!(draw_areas(Vec::new()), "");
    assert_eq!(
        draw_areas(vec![shape("NOWHERE", Vec::new(), 0.1), shape("OFF", vec![square(95.0, 0.0, 1.0)], 0.1)]),
        ""
    );
    let dot = draw_areas(vec![shape("DOT", vec![vec![LatLng::new(1.0, 2.0)]], 0.1)]);
    assert!(dot.contains("h4v4h-4Z") && dot.contains(">DOT<") && dot.contains(">10%<"), "{dot}");
}

#[test]
fn fine_outlines_are_thinned() {
    let circle: Vec<LatLng> = (0..50_000)
        .map(|n| {
            let turn = f64::from(n) / 50_000.0 * std::f64::consts::TAU;
            LatLng::new(turn.sin(), turn.cos())
        })
        .collect();
    let svg = draw_areas(vec![shape("ROUND", vec![circle], 0.1)]);
    assert_inside(&svg);
    assert!(svg.len() < 100_000, "{}", svg.len());
}

#[test]
fn order_map_centers_on_the_pickup() {
    let pickup = LatLng::new(-6.2, 106.8);
    let at = |north: f64, east: f64| {
        let lng = pickup.lng + east / METRES_PER_DEGREE / pickup.lat.to_radians().cos();
        LatLng::new(pickup.lat + north / METRES_PER_DEGREE, lng)
    };
    let mark = |id: &str, place, part| DriverMark { id: id.to_owned(), place, part };
    let drivers = [
        mark("D1", at(1_000.0, 0.0), DriverPart::Has),
        mark("D<2>", at(0.0, -500.0), DriverPart::Asked),
        mark("D3", at(0.0, 250.0), DriverPart::WasAsked),
    ];
    let svg = draw_order(pickup, &drivers, false);
    for text in [
        "<circle class=\"driver\" cx=\"320.0\" cy=\"30.0\" r=\"5\"><title>D1 has the order, 1.0 km</title>",
        ">D1 has the order, 1.0 km<",
        "<circle class=\"driver\" cx=\"260.0\" cy=\"150.0\" r=\"5\">",
        ">D&lt;2&gt; has an offer, 500 m<",
        "<circle class=\"out\" cx=\"350.0\" cy=\"150.0\" r=\"5\">",
        "M320 150L320.0 30.0",
        ">500 m<",
        "Map of the pickup and 3 drivers.",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(draw_order(pickup, &drivers, true).contains("D1 is on the trip"));
    let alone =
        draw_order(LatLng::new(0.0, 179.999), &[mark("E", LatLng::new(0.0, -179.999), DriverPart::Asked)], false);
    assert!(alone.contains(">E has an offer, 222 m<"), "{alone}");
    assert!(draw_order(pickup, &[], false).contains(">Pickup<"));
}

#[test]
fn phone_map_is_narrower_with_shorter_ids() {
    let pickup = LatLng::new(-6.2, 106.8);
    let driver =
        DriverMark { id: "0123456789abcdefg".to_owned(), place: LatLng::new(-6.191, 106.8), part: DriverPart::Has };
    let both = draw_order(pickup, &[driver], false);
    let (wide, narrow) = both.split_once("</svg>").unwrap();
    assert!(
        wide.contains("viewBox=\"0 0 640 300\"") && wide.contains(">0123456789abcdefg has the order, 1.0 km<"),
        "{wide}"
    );
    assert!(
        narrow.contains("viewBox=\"0 0 340 300\"") && narrow.contains(">0123456789abc has the order, 1.0 km<"),
        "{narrow}"
    );
    assert!(narrow.contains("cx=\"170.0\" cy=\"30.0\""), "{narrow}");
}

#[test]
fn rings_are_round_numbers() {
    for (metres, step) in
        [(1.0, 1.0), (99.0, 50.0), (100.0, 100.0), (499.0, 200.0), (500.0, 500.0), (12_345.0, 10_000.0)]
    {
        assert!((round_step(metres) - step).abs() < 1e-6, "{metres}: {}", round_step(metres));
    }
}
