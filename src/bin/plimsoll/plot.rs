//! `--plot FILE`: the losses of a run as an SVG.

use std::path::Path;

use plotters::prelude::*;

/// Readings of a run: step and loss.
#[derive(Default)]
pub struct Curves {
    /// Of batches, while training.
    pub train: Vec<(f64, f64)>,
    /// Of the test set, after each epoch.
    pub test: Vec<(f64, f64)>,
}

impl Curves {
    /// The plot as the text of an SVG.
    pub fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        let all = || self.train.iter().chain(&self.test);
        let last = all().map(|p| p.0).fold(1.0, f64::max);
        let high = all().map(|p| p.1).fold(f64::MIN, f64::max);
        let low = all().map(|p| p.1).fold(f64::MAX, f64::min);
        // A flat curve has room too.
        let margin = (0.05 * (high - low)).max(1e-3);
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, (800, 500)).into_drawing_area();
            root.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&root)
                .margin(16)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..last, low - margin..high + margin)?;
            chart.configure_mesh().x_desc("step").y_desc("loss").draw()?;
            for (name, points, colour) in
                [("training batch", &self.train, BLUE), ("test set", &self.test, RED)]
            {
                let circles = points.iter().map(|p| Circle::new(*p, 3, colour.filled()));
                if name == "test set" {
                    chart.draw_series(circles)?;
                }
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
            }
            chart
                .configure_series_labels()
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .draw()?;
            root.present()?;
        }
        Ok(text)
    }

    /// Whether a file of this name can be written.
    pub fn check(path: &Path) -> Result<(), String> {
        match path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg")) {
            true => Ok(()),
            false => Err(format!("--plot {}: expected a name that ends in .svg", path.display())),
        }
    }
}
