-- Changes of areas are told apart from changes of their limits, and the history of one area is read page by page.

-- `areas` is raised with every change of an area: polygons are read again only then.
ALTER TABLE admission_revision ADD COLUMN areas bigint NOT NULL DEFAULT 1;
CREATE FUNCTION dispatchq_areas_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE admission_revision SET number = number + 1, areas = areas + 1;
    RETURN NULL;
END $$;
DROP TRIGGER changed ON areas;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON areas
    FOR EACH STATEMENT EXECUTE FUNCTION dispatchq_areas_changed();

CREATE INDEX admission_audit_by_area ON admission_audit (area_id, id);
