//! One value a minute: its mean, and whether it stays.

use super::report;

/// The mean of one value a minute, and how it changes in an hour.
pub fn report_trend([name, slope_name, error_name]: [&str; 3], unit: &str, points: &[f64]) {
    #[allow(clippy::cast_precision_loss)] // Some tens.
    let mean = points.iter().sum::<f64>() / points.len() as f64;
    report(name, mean, unit, None);
    let Some((slope, error)) = slope(points) else { return };
    let hour = slope * 60.0;
    report(slope_name, hour, &format!("{unit} more in an hour"), Some((hour / mean, name)));
    report(error_name, error * 60.0, "the same, standard error", Some((error * 60.0 / mean, name)));
}

/// Of the least squares, for each point, with its standard error; `None`: too few points.
#[allow(clippy::cast_precision_loss)] // Some tens.
fn slope(points: &[f64]) -> Option<(f64, f64)> {
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, points.iter().sum::<f64>() / count);
    let offsets = || points.iter().enumerate().map(|(at, point)| (at as f64 - middle, point - mean));
    let spread: f64 = offsets().map(|(x, _)| x * x).sum();
    let slope = offsets().map(|(x, y)| x * y).sum::<f64>() / spread;
    let rest: f64 = offsets().map(|(x, y)| (y - slope * x).powi(2)).sum();
    Some((slope, (rest / (count - 2.0) / spread).sqrt()))
}
